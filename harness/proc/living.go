package proc

import "fmt"

// A Leftover is a process that carries a run's mark and is still alive.
type Leftover struct {
	PID     int
	Command string // its command line, spaces between the words
	State   string // one letter as in ps: "R", "S", "T"
}

// String is for a person: what it is and how to find it.
func (l Leftover) String() string {
	return fmt.Sprintf("process %d (%s): %s", l.PID, l.State, l.Command)
}

// Living finds the processes, other than this one, whose environment has the
// entry mark ("OVERBOOK_RUN=abc") or whose command line contains it as a whole
// word. Zombies are not alive. Processes that we may not look at are left out:
// they cannot be ours. Only on Linux; elsewhere an error.
func Living(mark string) ([]Leftover, error) {
	if mark == "" {
		return nil, fmt.Errorf("look for processes left over: the mark is empty")
	}
	return living(mark)
}
