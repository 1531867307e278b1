package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/provision"
)

const (
	gib          = 1 << 30
	leastCores   = 2
	leastMemory  = 2 * gib // Postgres, a JVM with a heap of 1 GiB, server, harness
	leastFree    = gib / 2 // jar 20 MB, archive 30 MB, data directory 40 MB, runs
	leastFiles   = 4096    // a burst of 1,000 needs about 3 descriptors a user
	leastPorts   = 10_000
	portsToProbe = 20
)

func cacheCheck(dir string, dirErr error) Check {
	return Check{
		Name: "cache directory", FixText: "set OVERBOOK_CACHE to a directory you can write to, with 500 MB free",
		Run: func(context.Context) (string, error) {
			if dirErr != nil {
				return "", dirErr
			}
			// The nearest directory that exists decides; nothing is made here.
			existing := dir
			for {
				if _, err := os.Stat(existing); err == nil {
					break
				}
				existing = parent(existing)
			}
			if err := unix.Access(existing, unix.W_OK|unix.X_OK); err != nil {
				return "", fmt.Errorf("%s is not writable: %w", existing, err)
			}
			free, err := freeSpace(existing)
			if err != nil {
				return "", err
			}
			if free < leastFree {
				return "", fmt.Errorf("%s has %s free, needed are %s", existing, size(free), size(leastFree))
			}
			return fmt.Sprintf("%s, %s free", dir, size(free)), nil
		},
	}
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func freeSpace(path string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", path, err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

func size(bytes uint64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.1f GB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%d MB", bytes>>20)
}

func postgresUserCheck() Check {
	return Check{
		Name: "user for PostgreSQL", FixText: "useradd --system postgres, or run as an ordinary user",
		Run: func(context.Context) (string, error) {
			cred, err := provision.PostgresUser()
			if err != nil {
				return "", err
			}
			if cred == nil {
				return fmt.Sprintf("the present one (%d)", os.Geteuid()), nil
			}
			return fmt.Sprintf("we are root, Postgres runs as user %d", cred.Uid), nil
		},
	}
}

func dockerCheck() Check {
	return Check{
		Name: "Docker", Optional: true, FixText: "needed only where local binaries are missing: https://docs.docker.com/engine/install/",
		Run: provision.DockerVersion,
	}
}

func coresCheck() Check {
	return Check{
		Name: "cores", Optional: true, FixText: "a machine with at least 2 cores: with one, racers take turns",
		Run: func(context.Context) (string, error) {
			usable := runtime.GOMAXPROCS(0)
			if usable < leastCores {
				return "", fmt.Errorf("%d usable core: races are much rarer than in production", usable)
			}
			return fmt.Sprintf("%d usable", usable), nil
		},
	}
}

func memoryCheck() Check {
	return Check{
		Name: "memory", Optional: true, FixText: "close something, or a machine with at least 2 GB free",
		Run: func(context.Context) (string, error) {
			free, err := availableMemory()
			if err != nil {
				return "", err
			}
			if free < leastMemory {
				return "", fmt.Errorf("%s available, wanted are %s", size(free), size(leastMemory))
			}
			return size(free) + " available", nil
		},
	}
}

func filesCheck() Check {
	return Check{
		Name: "open files", FixText: "ulimit -n 65536 (in the shell that starts overbook)",
		Run: func(context.Context) (string, error) {
			var limit syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				return "", fmt.Errorf("ask for the limit: %w", err)
			}
			// Go raises the soft limit to the hard one by itself.
			if limit.Cur < leastFiles {
				return "", fmt.Errorf("%d allowed, needed are %d for bursts of 1,000", limit.Cur, leastFiles)
			}
			return fmt.Sprintf("%d allowed", limit.Cur), nil
		},
	}
}

func portsCheck() Check {
	return Check{
		Name: "loopback ports", FixText: "sysctl -w net.ipv4.ip_local_port_range='15000 65000', and look with ss -s at what holds ports",
		Run: func(ctx context.Context) (string, error) {
			for range portsToProbe {
				l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
				if err != nil {
					return "", fmt.Errorf("listen on 127.0.0.1: %w", err)
				}
				defer l.Close()
			}
			low, high, err := portRange()
			if err != nil {
				return fmt.Sprintf("%d taken at once", portsToProbe), nil // the range is known on Linux alone
			}
			if high-low < leastPorts {
				return "", fmt.Errorf("only %d to %d may be used for outgoing connections; long load runs need %d", low, high, leastPorts)
			}
			return fmt.Sprintf("%d to %d", low, high), nil
		},
	}
}

func ringCheck() Check {
	return Check{
		Name: "io_uring", Optional: true, FixText: "sysctl -w kernel.io_uring_disabled=0, or allow it in the container's seccomp profile; without it bursts are released by one thread, a little less tight",
		Run: func(context.Context) (string, error) {
			if err := ringAllowed(); err != nil {
				return "", fmt.Errorf("not allowed: %w", err)
			}
			return "allowed", nil
		},
	}
}

func goCheck() Check {
	return Check{
		Name: "Go toolchain", Optional: true, FixText: "https://go.dev/dl/: needed for mutants alone, which are compiled",
		Run: func(ctx context.Context) (string, error) {
			path, err := exec.LookPath("go")
			if err != nil {
				return "", errors.New("no go in PATH")
			}
			return provision.VersionOf(ctx, path, "version")
		},
	}
}
