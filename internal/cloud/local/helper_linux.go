package local

import (
	"fmt"
	"io"
	"strconv"
)

// Helper runs the hidden command `curfew cage` and returns its exit code: "enter" waits at a gate
// and becomes another program, "init" is the first process of a PID namespace, "watch" supervises a
// machine until it has ended.
func Helper(args []string, stderr io.Writer) int {
	var err error
	switch {
	case len(args) >= 3 && args[0] == "enter":
		var gate int
		if gate, err = strconv.Atoi(args[1]); err == nil {
			err = enter(gate, args[2], args[3:])
		}
	case len(args) == 1 && args[0] == "init":
		err = runInit()
	case len(args) == 2 && args[0] == "watch":
		err = runWatcher(args[1], stderr)
	default:
		err = fmt.Errorf("%q: it is started by curfew alone", args)
	}
	if err != nil {
		fmt.Fprintln(stderr, "curfew cage:", err)
		return 1
	}
	return 0
}
