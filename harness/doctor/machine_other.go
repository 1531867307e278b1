//go:build unix && !linux

package doctor

import (
	"errors"
	"runtime"
)

var errNotKnown = errors.New("not known on " + runtime.GOOS)

func availableMemory() (uint64, error)    { return 0, errNotKnown }
func portRange() (low, high int, _ error) { return 0, 0, errNotKnown }
func ringAllowed() error                  { return errors.New("there is none on " + runtime.GOOS) }
