package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WireMockVersion is the version that everything here was measured with.
const WireMockVersion = "3.13.2"

const jarSHA256 = "d097b19bd483c5038479b13a5c71e9faf8f2f5106584f0c120a7770ab0bdb367"

// A Jar is WireMock's standalone jar.
type Jar struct {
	Path   string // absolute
	SHA256 string // hexadecimal
	Pinned bool   // it is the one that everything here was measured with
}

// JarPath is where the pinned jar is kept.
func JarPath(cacheDir string) string {
	return filepath.Join(cacheDir, "wiremock-standalone-"+WireMockVersion+".jar")
}

// FindJar gives $OVERBOOK_WIREMOCK_JAR, whatever version that is, else the
// pinned jar of the cache. The sum is taken at every use: a jar in the cache
// with another sum is a [*Problem], never used and never silently replaced.
func FindJar(cacheDir string) (Jar, error) {
	if path := os.Getenv("OVERBOOK_WIREMOCK_JAR"); path != "" {
		path, err := filepath.Abs(path)
		if err != nil {
			return Jar{}, err
		}
		sum, err := fileSum(path)
		if err != nil {
			return Jar{}, &Problem{What: "find WireMock's jar", Where: "OVERBOOK_WIREMOCK_JAR=" + path, Err: err, Fix: "name a wiremock-standalone jar, version 3"}
		}
		return Jar{Path: path, SHA256: sum, Pinned: sum == jarSHA256}, nil
	}
	path := JarPath(cacheDir)
	sum, err := fileSum(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Jar{}, absent("no WireMock jar at %s", path)
	case err != nil:
		return Jar{}, &Problem{What: "read WireMock's jar", Where: path, Err: err, Fix: wiremockFix()}
	case sum != jarSHA256:
		return Jar{}, &Problem{What: "check WireMock's jar", Where: path, Why: "it is damaged or another version: SHA-256 is " + sum + ", " + WireMockVersion + " has " + jarSHA256, Fix: wiremockFix()}
	}
	return Jar{Path: path, SHA256: sum, Pinned: true}, nil
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
