package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const downloadTimeout = 5 * time.Minute

// FetchWireMock puts the pinned jar into the cache: out of the npm package
// wiremock, or from Maven Central by mvn where there is no npm. Both clients use
// the registries that they are set up for. Where there is neither, npm is
// installed as [Install] does it. Nothing gets its final name before its sum is
// right. A jar that is there and right is kept.
func FetchWireMock(ctx context.Context, cacheDir string, progress func(string)) error {
	target := JarPath(cacheDir)
	if sum, err := fileSum(target); err == nil && sum == jarSHA256 {
		return nil
	}
	if err := packageClient(ctx, progress); err != nil {
		err.Fix = InstallCommand("npm") + "; or " + byHand(target)
		return err
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
	defer func() { _ = part.remove() }() // what stays is swept at the next start
	dir := part.dir
	jar := filepath.Join(dir, "wiremock.jar")
	if err := fetchJar(ctx, dir, jar, progress); err != nil {
		err.Fix = byHand(target)
		return err
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

// packageClient makes sure that there is npm or mvn.
func packageClient(ctx context.Context, progress func(string)) *Problem {
	for _, name := range []string{"npm", "mvn"} {
		if _, err := exec.LookPath(name); err == nil {
			return nil
		}
	}
	if !canApt() {
		return &Problem{What: "fetch WireMock's jar", Where: "npm, mvn", Why: "neither is installed"}
	}
	if err := Install(ctx, "npm", progress); err != nil {
		return &Problem{What: "fetch WireMock's jar", Err: err}
	}
	return nil
}

// fetchJar asks the first package client that is installed.
func fetchJar(ctx context.Context, dir, jar string, progress func(string)) *Problem {
	if npm, err := exec.LookPath("npm"); err == nil {
		progress("fetching WireMock " + WireMockVersion + " with npm (18 MB)")
		if err := packJar(ctx, npm, dir, jar); err != nil {
			return &Problem{What: "fetch WireMock's jar", Where: "npm pack wiremock@" + WireMockVersion, Err: err}
		}
		return nil
	}
	if mvn, err := exec.LookPath("mvn"); err == nil {
		progress("fetching WireMock " + WireMockVersion + " with mvn (19 MB)")
		if err := copyArtifact(ctx, mvn, dir, jar); err != nil {
			return &Problem{What: "fetch WireMock's jar", Where: "mvn dependency:copy of " + mavenArtifact, Err: err}
		}
		return nil
	}
	return &Problem{What: "fetch WireMock's jar", Where: "npm, mvn", Why: "neither is in PATH"}
}

const mavenArtifact = "org.wiremock:wiremock-standalone:" + WireMockVersion

// copyArtifact lets mvn fetch the artifact into a repository of its own below
// dir, so that nothing of the caller's plays a part.
func copyArtifact(ctx context.Context, mvn, dir, jar string) error {
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "-Dmaven.repo.local="+filepath.Join(dir, "m2"),
		"dependency:copy", "-Dartifact="+mavenArtifact, "-DoutputDirectory="+filepath.Join(dir, "out"))
	cmd.Dir = dir
	cmd.WaitDelay = stopGrace
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(filepath.Join(dir, "out", "wiremock-standalone-"+WireMockVersion+".jar"), jar)
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
