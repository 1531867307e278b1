package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const installTimeout = 20 * time.Minute // apt on a busy machine behind a slow line

// aptPackages are alternatives: the first that there is gets installed.
var aptPackages = map[string][]string{
	"postgres": {"postgresql"},
	"redis":    {"redis-server"},
	"java":     {"openjdk-17-jre-headless", "default-jre-headless"},
	"npm":      {"npm"},
}

var otherPackages = map[string]map[string]string{
	"brew":   {"postgres": "postgresql@17", "redis": "redis", "java": "openjdk", "npm": "node"},
	"dnf":    {"postgres": "postgresql-server", "redis": "redis", "java": "java-17-openjdk-headless", "npm": "npm"},
	"apk":    {"postgres": "postgresql", "redis": "redis", "java": "openjdk17-jre-headless", "npm": "npm"},
	"pacman": {"postgres": "postgresql", "redis": "redis", "java": "jre17-openjdk-headless", "npm": "npm"},
	"zypper": {"postgres": "postgresql-server", "redis": "redis", "java": "java-17-openjdk-headless", "npm": "npm"},
}

var installVerbs = map[string]string{"brew": "brew install", "dnf": "dnf install -y", "apk": "apk add", "pacman": "pacman -S", "zypper": "zypper install"}

// installFix says how to get a part ("postgres", "redis", "java", "npm") on this
// platform.
func installFix(part string) string {
	if canApt() {
		return "overbook doctor --fix"
	}
	return InstallCommand(part)
}

// InstallCommand is the command of this platform that installs the part
// ("postgres", "redis", "java", "npm"), or words when the platform is unknown.
func InstallCommand(part string) string {
	sudo := "sudo "
	if os.Geteuid() == 0 {
		sudo = ""
	}
	if _, err := exec.LookPath("apt-get"); err == nil {
		names := aptPackages[part] // the last is the one that every release has
		return sudo + "apt-get install -y " + names[len(names)-1]
	}
	for _, manager := range []string{"brew", "dnf", "apk", "pacman", "zypper"} {
		if _, err := exec.LookPath(manager); err == nil {
			if manager == "brew" {
				sudo = ""
			}
			return sudo + installVerbs[manager] + " " + otherPackages[manager][part]
		}
	}
	return fmt.Sprintf("install %s (%s)", part, runtime.GOOS)
}

// wiremockFix says how to get Java or the jar.
func wiremockFix() string {
	if _, err := Java(); err != nil && !canApt() {
		return InstallCommand("java") + ", then overbook doctor --fix"
	}
	return "overbook doctor --fix"
}

// canApt reports whether we may install packages ourselves.
func canApt() bool {
	_, err := exec.LookPath("apt-get")
	return err == nil && os.Geteuid() == 0
}

// Install gets a part ("postgres", "redis", "java", "npm") with apt when we are root
// on Debian or Ubuntu; elsewhere it gives a [*Problem] with the command. It
// starts no service and makes no Postgres cluster.
func Install(ctx context.Context, part string, progress func(string)) error {
	if !canApt() {
		return &Problem{What: "install " + part, Why: "that needs root on Debian or Ubuntu", Fix: InstallCommand(part)}
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	restore, err := holdServices(part)
	if err != nil {
		return err
	}
	err = aptInstall(ctx, part, progress)
	return errors.Join(err, restore())
}

func aptInstall(ctx context.Context, part string, progress func(string)) error {
	progress("apt-get update")
	updateErr := apt(ctx, "update", "-q") // old lists may do; the installation decides
	var errs []error
	for _, name := range aptPackages[part] {
		progress("apt-get install " + name)
		err := apt(ctx, "install", "-q", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", name)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return &Problem{What: "install " + part, Where: "apt-get install", Err: errors.Join(append(errs, updateErr)...), Fix: InstallCommand(part)}
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.WaitDelay = stopGrace
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("apt-get %s: %w:\n    %s", args[0], err, strings.Join(lines[max(0, len(lines)-10):], "\n    "))
	}
	return nil
}

const (
	policyFile  = "/usr/sbin/policy-rc.d"
	clusterDir  = "/etc/postgresql-common"
	clusterFile = clusterDir + "/createcluster.conf"
)

// holdServices keeps the packages' scripts from starting services and from
// making a cluster. Files that exist already are somebody's decision and stay.
func holdServices(part string) (restore func() error, err error) {
	restore = func() error { return nil }
	if part == "postgres" {
		if err := os.MkdirAll(clusterDir, 0o755); err != nil {
			return nil, &Problem{What: "keep apt from making a Postgres cluster", Where: clusterDir, Err: err}
		}
		if err := writeNew(clusterFile, "create_main_cluster = false\n", 0o644); err != nil {
			return nil, &Problem{What: "keep apt from making a Postgres cluster", Where: clusterFile, Err: err}
		}
	}
	if _, err := os.Lstat(policyFile); err == nil {
		return restore, nil
	}
	if err := writeNew(policyFile, "#!/bin/sh\nexit 101\n", 0o755); err != nil {
		return nil, &Problem{What: "keep apt from starting services", Where: policyFile, Err: err}
	}
	return func() error { return os.Remove(policyFile) }, nil
}

// writeNew writes a file unless there is one.
func writeNew(path, text string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
