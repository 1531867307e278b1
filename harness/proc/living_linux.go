package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func living(mark string) ([]Leftover, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes left over: %w", err)
	}
	var found []Leftover
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		l, ok, err := inspect(pid, mark)
		if err != nil {
			return nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		if ok {
			found = append(found, l)
		}
	}
	return found, nil
}

func inspect(pid int, mark string) (Leftover, bool, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	cmdline, err1 := os.ReadFile(dir + "/cmdline")
	environ, err2 := os.ReadFile(dir + "/environ")
	for _, err := range []error{err1, err2} {
		if err != nil && !gone(err) {
			return Leftover{}, false, err
		}
	}
	marked := slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return string(v) == mark })
	if !marked && !hasWord(cmdline, []byte(mark)) {
		return Leftover{}, false, nil
	}
	state := stateOf(dir)
	if state == "" || state == "Z" || state == "X" {
		return Leftover{}, false, nil // gone while we looked
	}
	command := strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
	return Leftover{PID: pid, Command: command, State: state}, true, nil
}

// gone covers a process that ended while we looked, and one that is not ours.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH)
}

// stateOf reads the letter after the command's name, which may hold anything
// but ends at the last parenthesis.
func stateOf(dir string) string {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return ""
	}
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return ""
	}
	return string(stat[i+2 : i+3])
}

// hasWord reports whether text has word with no letter or digit around it.
func hasWord(text, word []byte) bool {
	for from := 0; ; {
		i := bytes.Index(text[from:], word)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(word)
		if (i == 0 || !wordByte(text[i-1])) && (end == len(text) || !wordByte(text[end])) {
			return true
		}
		from = i + 1
	}
}

func wordByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}
