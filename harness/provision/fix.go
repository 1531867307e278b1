package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	downloadTimeout = 5 * time.Minute
	mavenJar        = "https://repo1.maven.org/maven2/org/wiremock/wiremock-standalone/" + WireMockVersion + "/wiremock-standalone-" + WireMockVersion + ".jar"
)

// FetchWireMock puts the pinned jar into the cache: out of the npm package
// wiremock, or from Maven Central where there is no npm. Nothing gets its
// final name before its sum is right. A jar that is there and right is kept.
func FetchWireMock(ctx context.Context, cacheDir string, progress func(string)) error {
	target := JarPath(cacheDir)
	if sum, err := fileSum(target); err == nil && sum == jarSHA256 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return &Problem{What: "make the cache directory", Where: cacheDir, Err: err, Fix: "set OVERBOOK_CACHE to a directory you can write to"}
	}
	part, err := newScratch(cacheDir)
	if err != nil {
		return err
	}
	defer part.remove()
	dir := part.dir
	jar := filepath.Join(dir, "wiremock.jar")
	if npm, err := exec.LookPath("npm"); err == nil {
		progress("fetching WireMock " + WireMockVersion + " with npm (18 MB)")
		err = packJar(ctx, npm, dir, jar)
		if err != nil {
			return &Problem{What: "fetch WireMock's jar", Where: "npm pack wiremock@" + WireMockVersion, Err: err, Fix: byHand(target)}
		}
	} else {
		progress("fetching WireMock " + WireMockVersion + " from Maven Central (19 MB)")
		if err := download(ctx, mavenJar, jar); err != nil {
			return &Problem{What: "fetch WireMock's jar", Where: mavenJar, Err: err, Fix: "install npm and try again, or " + byHand(target)}
		}
	}
	sum, err := fileSum(jar)
	if err != nil {
		return &Problem{What: "check the jar just fetched", Where: jar, Err: err}
	}
	if sum != jarSHA256 {
		return &Problem{What: "check the jar just fetched", Where: target, Why: "its SHA-256 is " + sum + ", expected " + jarSHA256 + "; it was not kept", Fix: byHand(target)}
	}
	return os.Rename(jar, target)
}

func byHand(target string) string {
	return "get wiremock-standalone-" + WireMockVersion + ".jar by hand and put it at " + target + ", or name it by OVERBOOK_WIREMOCK_JAR"
}

const (
	jarInPackage = "package/build/"
	jarLimit     = 64 << 20 // bytes; the real one has 19.5 MB
)

// packJar lets npm fetch the package, in a directory of its own so that no
// package.json or .npmrc of the caller plays a part, and takes the jar out.
func packJar(ctx context.Context, npm, dir, jar string) error {
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "wiremock@"+WireMockVersion)
	cmd.Dir = dir
	cmd.WaitDelay = stopGrace
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("npm left %d packages in %s", len(packages), dir)
	}
	return takeOut(packages[0], jar)
}

// download gets one file, to its end.
func download(ctx context.Context, url, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return writeFile(path, resp.Body)
}

func writeFile(path string, from io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(from, jarLimit+1))
	if err == nil && n > jarLimit {
		err = fmt.Errorf("more than %d MB", jarLimit>>20)
	}
	return errors.Join(err, f.Close())
}
