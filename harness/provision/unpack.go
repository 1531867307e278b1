package provision

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// takeOut writes the jar of the npm package to its own file.
func takeOut(tgz, jar string) error {
	f, err := os.Open(tgz)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", tgz, err)
	}
	files := tar.NewReader(plain)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("no jar below %s in %s", jarInPackage, tgz)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", tgz, err)
		}
		if h.Typeflag == tar.TypeReg && strings.HasPrefix(path.Clean(h.Name), jarInPackage) && strings.HasSuffix(h.Name, ".jar") {
			return writeFile(jar, files)
		}
	}
}
