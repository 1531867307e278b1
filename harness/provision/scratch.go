package provision

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/clock"
)

const (
	scratchPrefix = "overbook-part-"
	scratchLock   = ".owner"
	scratchYoung  = time.Minute // a directory younger than this is let be: its owner may not hold the lock yet
)

// A scratch is a temporary directory whose owner holds a file lock. The lock
// goes with the owner, however it ends, so that directories of dead runs are
// told from those of living ones.
type scratch struct {
	dir  string
	lock *os.File
}

// newScratch makes a directory in base, after removing those of dead runs.
func newScratch(base string) (*scratch, error) {
	sweepScratch(base)
	dir, err := os.MkdirTemp(base, scratchPrefix)
	if err != nil {
		return nil, &Problem{What: "make a temporary directory", Where: base, Err: err, Fix: "make room there, or name another place by TMPDIR (by OVERBOOK_CACHE for the cache)"}
	}
	lock, err := os.Create(filepath.Join(dir, scratchLock))
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(&Problem{What: "lock a temporary directory", Where: dir, Err: err}, os.RemoveAll(dir))
	}
	return &scratch{dir: dir, lock: lock}, nil
}

// remove deletes the directory and gives the lock up. Removing again does nothing.
func (s *scratch) remove() error {
	err := os.RemoveAll(s.dir)
	if closeErr := s.lock.Close(); closeErr != nil && !errors.Is(closeErr, os.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	return err
}

// sweepScratch removes the directories in base whose owners are dead. What it
// may not remove belongs to somebody else and stays.
func sweepScratch(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, scratchPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || clock.Wall().Sub(info.ModTime()) < scratchYoung {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, scratchLock)); err == nil && scratchDead(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// scratchDead reports whether the directory is gone, or its owner is. In
// doubt it lives.
func scratchDead(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, scratchLock))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
