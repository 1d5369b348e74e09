package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/connect"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
)

// connectFlags are the flags of connect.
type connectFlags struct {
	connect.Options
	port      string
	copy, yes bool
}

func (a *app) newConnect() *cobra.Command {
	var f connectFlags
	c := &cobra.Command{
		Use:   "connect NAME [-- COMMAND] | NAME --copy FROM TO",
		Short: "Open a shell, run a command, forward a port, open an editor or copy files on a session's machine",
		Long: `Opens a shell in the work folder of a session, or runs a command there. Its processes belong
to the session and end with it. The exit code is the command's. A command that is one argument
with spaces or shell characters runs in a shell, as with ssh: 'cd data; ls | wc -l'. Several
arguments are passed as they are.

At AWS the connection uses Systems Manager: the machine has no open port, and only its owner
is admitted. The Session Manager plugin has to be installed; otherwise the install command is
printed. A command has no input there, and both its outputs are printed to the standard
output. --port forwards a port of the machine until Ctrl-C. --editor writes an entry into
~/.ssh and opens the editor by it. --copy copies a file or a folder; a path that begins with
a colon is one of the session, below its work folder unless it is absolute.

Each SSH connection has a separate key. The key is in memory only, and the machine forgets
it as soon as the connection is made.`,
		Example: `  curfew connect demo
  curfew connect demo -- python train.py
  curfew connect demo -- 'cd data; ls | wc -l'
  curfew connect demo --node 1 -- hostname
  curfew connect demo --port 8888            # a port of the machine, on the same port here
  curfew connect demo --port 8888:9999       # on port 9999 here
  curfew connect demo --editor code          # or cursor
  curfew connect demo --copy data :data      # to the session
  curfew connect demo --copy :out/model.pt . # from the session`,
		Args: func(c *cobra.Command, args []string) error {
			dash := c.ArgsLenAtDash()
			switch {
			case f.copy && (len(args) != 3 || dash >= 0):
				return usageError(
					"%s --copy takes the name of one session and two paths, one of which begins with a colon",
					c.CommandPath())
			case !f.copy && (len(args) == 0 || dash != 1 && (len(args) > 1 || dash == 0)):
				return usageError("%s takes the name of one session, and after -- a command", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.Name = args[0]
			if f.copy {
				f.Copy = &connect.CopyPaths{From: args[1], To: args[2]}
			} else {
				f.Command = args[1:]
			}
			return a.connect(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.IntVar(&f.Node, "node", 0, "which of several machines, from 0")
	fl.StringVar(&f.port, "port", "", "forward `PORT[:LOCAL]` until Ctrl-C")
	fl.Var(ops.NewChoice("editor", &f.Editor, connect.Editors), "editor",
		"open the work folder in an editor: code or cursor")
	fl.BoolVar(&f.copy, "copy", false, "copy a file or folder to the session or from it")
	fl.BoolVar(&f.yes, "yes", false, "add the line to ~/.ssh/config that --editor needs, without asking")
	fl.BoolVar(&f.Stdio, "stdio", false, "be the stream of an SSH connection, as the entry of an editor asks")
	_ = fl.MarkHidden("stdio") // the flag is there
	return c
}

// parsePorts reads PORT[:LOCAL].
func parsePorts(text string) (port, local int, err error) {
	first, second, both := strings.Cut(text, ":")
	port, err = strconv.Atoi(first)
	if local = port; both && err == nil {
		local, err = strconv.Atoi(second)
	}
	if err != nil || port < 1 || port > 65535 || local < 1 || local > 65535 {
		return 0, 0, usageError(
			"--port %q: it is a port of the machine, and after a colon another one of this machine, such as 8888:9999",
			text)
	}
	return port, local, nil
}

// connect connects to a machine of a session.
func (a *app) connect(ctx context.Context, f connectFlags) error {
	o := f.Options
	var err error
	asked := 0
	for _, is := range []bool{f.port != "", f.Editor != "", f.Stdio, f.copy, len(f.Command) > 0} {
		if is {
			asked++
		}
	}
	if asked > 1 {
		return usageError("curfew connect does one thing: a command, --port, --editor or --copy")
	}
	if f.port != "" {
		if o.Port, o.Local, err = parsePorts(f.port); err != nil {
			return err
		}
	}
	all, err := sessions.Open(ctx, a.req)
	if err != nil {
		return err
	}
	defer all.Close()
	whole := ctx
	ctx, stop := a.untilHangup(ctx)
	defer stop()
	a.progress.clear(true)
	o.Environ, o.In, o.Out, o.Err = os.Environ(), a.Stdin, a.raw.out, a.raw.err
	o.YieldTerminal, o.Confirm = a.Yield, func(line, file string) error { return a.consent(line, file, f.yes) }
	if o.Port > 0 || o.Editor != "" || o.Copy != nil {
		o.Err = a.Stderr
	}
	if o.Stdio {
		o.Out = a.raw.file
	}
	code, err := connect.Connect(ctx, all, o)
	if err != nil && ctx.Err() != nil && whole.Err() == nil {
		err = &failure{
			exit: ExitInterrupted, code: "interrupted", err: errors.New("interrupted: the terminal was closed"),
		}
	}
	if err == nil && code != 0 {
		err = &failure{
			exit: code, code: "command_failed", err: fmt.Errorf("the command ended with exit code %d", code),
		}
	}
	return err
}

// untilHangup returns a context that ends with the terminal too, so that open connections are
// closed.
func (a *app) untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	if a.Hangups == nil {
		return ctx, stop
	}
	hangups := a.Hangups()
	go func() {
		select {
		case <-hangups:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// consent asks the person whether a line may be added to a file.
func (a *app) consent(line, file string, yes bool) error {
	return a.askFirst(yes, fmt.Sprintf(
		"%s needs this line at its beginning, once; nothing else of it changes:\n\n  %s\n\nAdd it?", file, line), &failure{
		exit: ExitUsage, code: "no_consent",
		err:  fmt.Errorf("%s needs the line %q before its first Host", plain.Line(file), line),
		hint: "add it, or give --yes",
	})
}

// askFirst asks the person a question, and returns the failure unless the answer is yes.
func (a *app) askFirst(yes bool, question string, no *failure) error {
	if yes {
		return nil
	}
	if a.Secret == nil { // no one is asked where there is no terminal
		return no
	}
	plain.Fprintf(a.Stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		return errors.Join(no, err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return no
}
