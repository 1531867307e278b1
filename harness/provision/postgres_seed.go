package provision

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/overbook/overbook/harness/proc"
)

// initdbFlags decide what a fresh cluster looks like; they are part of the
// seed's key.
var initdbFlags = []string{"-N", "--locale=C", "-E", "UTF8", "-A", "trust", "-U", "postgres"}

// A seed is a data directory just made by initdb, kept in the cache as one
// file: a tar archive followed by its SHA-256, so that a file cut short or
// damaged is known when it is read.
type seed struct {
	bin, version, cache string
	cred                *syscall.Credential
	env                 []string
	progress            func(string)
}

// An unreadError says that there is no seed, or that it cannot be opened.
type unreadError struct{ error }

var errDamaged = errors.New("cached data directory is damaged")

// path is different for every build of Postgres and every set of flags.
func (s seed) path() string {
	key := sha256.Sum256([]byte(strings.Join(append([]string{s.bin, runtime.GOOS, runtime.GOARCH}, initdbFlags...), "\x00")))
	return filepath.Join(s.cache, fmt.Sprintf("postgres-%s-%s.seed", s.version, hex.EncodeToString(key[:4])))
}

// unpack makes the data directory: from the cache, or by initdb when there is
// no seed or a damaged one. A cache that cannot be written costs time only.
func (s seed) unpack(ctx context.Context, data string) error {
	err := s.restore(data)
	var unread *unreadError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDamaged):
		s.progress(fmt.Sprintf("%s: %v; making it anew", s.path(), err))
	case errors.As(err, &unread): // none there, most likely; storing one will tell
	default:
		return &Problem{What: "unpack PostgreSQL's data directory", Where: data, Err: err, Fix: "make room there, or remove " + s.path()}
	}
	if err := os.RemoveAll(data); err != nil {
		return &Problem{What: "clear PostgreSQL's data directory", Where: data, Err: err}
	}
	s.progress("making PostgreSQL's data directory (once)")
	if err := s.initdb(ctx, data); err != nil {
		return err
	}
	if err := s.store(data); err != nil {
		s.progress(fmt.Sprintf("the next start will be slower: cannot keep the data directory: %v", err))
	}
	return nil
}

// initdb runs as the user that will run the server, in a directory that is
// already that user's.
func (s seed) initdb(ctx context.Context, data string) error {
	if err := os.Mkdir(data, 0o700); err != nil {
		return &Problem{What: "make PostgreSQL's data directory", Where: data, Err: err}
	}
	if s.cred != nil {
		err := errors.Join(os.Chown(filepath.Dir(data), int(s.cred.Uid), int(s.cred.Gid)), os.Chown(data, int(s.cred.Uid), int(s.cred.Gid)))
		if err != nil {
			return &Problem{What: "hand the data directory to the user that runs Postgres", Where: data, Err: err}
		}
	}
	p, err := proc.Start(ctx, proc.Spec{Name: "initdb", Path: filepath.Join(s.bin, "initdb"), Args: append([]string{"-D", data}, initdbFlags...), Env: s.env, Dir: "/", Credential: s.cred})
	if err != nil {
		return &Problem{What: "make PostgreSQL's data directory", Where: data, Err: err}
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("make PostgreSQL's data directory: %w", context.Cause(ctx)), p.Kill())
	}
	if p.ExitText() != "exit status 0" {
		return &Problem{
			What: "make PostgreSQL's data directory", Where: filepath.Join(s.bin, "initdb"),
			Why: p.ExitText() + "; its last output:\n    " + strings.Join(p.Tail(30), "\n    "), Fix: "check the free space and the rights of " + filepath.Dir(data),
		}
	}
	return nil
}

// store writes the seed under a name of its own and renames it, so that
// readers see a whole one or none, and of two writers one wins. It is not
// synced: a file that a power cut spoilt is known by its sum.
func (s seed) store(data string) (err error) {
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return err
	}
	part, err := newScratch(s.cache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, part.remove()) }()
	f, err := os.Create(filepath.Join(part.dir, "seed"))
	if err != nil {
		return err
	}
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(f, sum))
	if err := errors.Join(w.AddFS(os.DirFS(data)), w.Close()); err != nil {
		f.Close()
		return err
	}
	_, err = f.Write(sum.Sum(nil))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.path())
}

// restore unpacks the seed and compares its sum.
func (s seed) restore(data string) error {
	f, err := os.Open(s.path())
	if err != nil {
		return &unreadError{err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 {
		return errDamaged
	}
	sum := sha256.New()
	body := io.TeeReader(io.LimitReader(f, size), sum)
	if err := s.extract(tar.NewReader(body), data); err != nil {
		return err
	}
	return checkSum(body, f, sum)
}

// checkSum reads what the archive's reader left of the body, then the sum.
func checkSum(body, file io.Reader, sum hash.Hash) error {
	want := make([]byte, sha256.Size)
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	if _, err := io.ReadFull(file, want); err != nil || !bytes.Equal(want, sum.Sum(nil)) {
		return errDamaged
	}
	return nil
}

func (s seed) extract(archive *tar.Reader, data string) error {
	if err := s.makeDir(data); err != nil {
		return err
	}
	root, err := os.OpenRoot(data)
	if err != nil {
		return err
	}
	defer root.Close()
	buffer := make([]byte, 64<<10)
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errDamaged
		case h.Name == "." || h.Name == "./":
		case h.Typeflag == tar.TypeDir:
			err = s.makeDir(filepath.Join(data, filepath.Clean("/"+h.Name)))
		case h.Typeflag == tar.TypeReg:
			err = s.extractFile(root, h, archive, buffer)
		default:
			err = errDamaged
		}
		if err != nil {
			return err
		}
	}
}

func (s seed) makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if s.cred == nil {
		return nil
	}
	return os.Chown(path, int(s.cred.Uid), int(s.cred.Gid))
}

// extractFile leaves out blocks of zeros: most of the first WAL segment.
func (s seed) extractFile(root *os.Root, h *tar.Header, body io.Reader, buffer []byte) (err error) {
	f, err := root.OpenFile(filepath.Clean(h.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if s.cred != nil {
		if err := f.Chown(int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return err
		}
	}
	for offset := int64(0); offset < h.Size; {
		block := buffer[:min(int64(len(buffer)), h.Size-offset)]
		if _, err := io.ReadFull(body, block); err != nil {
			return errDamaged
		}
		if !allZero(block) {
			if _, err := f.WriteAt(block, offset); err != nil {
				return err
			}
		}
		offset += int64(len(block))
	}
	return f.Truncate(h.Size)
}

var zeros [64 << 10]byte

func allZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }
