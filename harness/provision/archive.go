package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An archive is the JVM's class-data archive for one Java and one jar: with it
// WireMock is up in half the time. It is only an optimisation: without a
// fitting one the start is slower and nothing else is different.
//
// The JVM dies of SIGBUS on an archive that was cut short, so the size is kept
// beside the file and compared before use.
type archive struct {
	path string
	java string
	jar  Jar
}

// archiveFor names the archive. Java is told by its real path and the time
// stamps of its files, since asking it for its version takes as long as the
// archive saves.
func archiveFor(cacheDir, java string, jar Jar) archive {
	parts := []string{jar.SHA256, jar.Path}
	if binary, err := filepath.EvalSymlinks(java); err == nil {
		home := filepath.Dir(filepath.Dir(binary))
		for _, file := range []string{binary, filepath.Join(home, "release"), filepath.Join(home, "lib", "modules"), filepath.Join(home, "lib", "server", "libjvm.so"), jar.Path} {
			if info, err := os.Stat(file); err == nil {
				parts = append(parts, fmt.Sprintf("%s %d %d", file, info.Size(), info.ModTime().UnixNano()))
			}
		}
	}
	key := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return archive{path: filepath.Join(cacheDir, "wiremock-"+WireMockVersion+"-"+hex.EncodeToString(key[:6])+".jsa"), java: java, jar: jar}
}

func (a archive) sizePath() string { return a.path + ".size" }

// usable gives the path when the archive is there and whole, else "".
func (a archive) usable() string {
	info, err := os.Stat(a.path)
	if err != nil {
		return ""
	}
	size, err := os.ReadFile(a.sizePath())
	if err != nil || strings.TrimSpace(string(size)) != strconv.FormatInt(info.Size(), 10) {
		return ""
	}
	return a.path
}
