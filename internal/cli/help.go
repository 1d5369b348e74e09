package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// The columns of help texts. Examples are commands, which are never broken.
const (
	helpWidth  = 80
	helpIndent = 15 // columns before the description of a command
)

// commandGroups are the commands of the first help, grouped by task, each group in the order of
// work.
var commandGroups = []struct {
	title    string
	commands []string
}{
	{"See what runs and what it costs", []string{
		"scan", "why", "costs", "bill", "alerts", "doctor", "record",
	}},
	{"Stop waste", []string{
		"fix", "tag", "policy", "backtest", "enforce", "keep", "consent", "confirm", "freeze", "unfreeze",
	}},
	{"Decide before work starts", []string{
		"estimate", "gate", "budget", "approvals", "approve", "deny",
	}},
	{"Use GPUs", []string{
		"up", "run", "ls", "status", "connect", "logs", "explain", "extend", "down", "cancel", "profile", "session",
		"ci", "checkpoint",
	}},
	{"Plan and serve models", []string{"plan", "price", "gateway", "fleets"}},
	{"Set up and operate curfew", []string{
		"init", "serve", "settings", "state", "audit", "login", "logout", "whoami", "token", "agent",
		"completion", "version",
	}},
}

// setHelp makes help and usage of root and of its commands those of this file.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { printHelp(c.OutOrStdout(), c) })
	root.SetUsageFunc(func(c *cobra.Command) error {
		printUsage(c.OutOrStderr(), c)
		return nil
	})
}

// printHelp writes the description of a command and its usage.
func printHelp(w io.Writer, c *cobra.Command) {
	about := c.Long
	if about == "" {
		about = c.Short
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(about), "\n\n") {
		if i > 0 {
			plain.Fprintln(w)
		}
		writeText(w, reflow(paragraph)+"\n")
	}
	plain.Fprintln(w)
	printUsage(w, c)
}

// reflow breaks a paragraph at helpWidth. Lines that are indented stay as they are.
func reflow(paragraph string) string {
	var out []string
	text := ""
	flush := func() {
		out = append(out, layout.Wrap(text, helpWidth)...)
		text = ""
	}
	for _, line := range strings.Split(paragraph, "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			flush()
			out = append(out, line)
			continue
		}
		text += " " + line
	}
	flush()
	return strings.Join(out, "\n")
}

// printUsage writes the forms, examples, commands and flags of a command.
func printUsage(w io.Writer, c *cobra.Command) {
	plain.Fprintf(w, "Usage:")
	if c.Runnable() {
		printForm(w, c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		printForm(w, c.CommandPath()+" [command]")
	}
	plain.Fprintln(w)
	if c.HasExample() {
		writeText(w, "\nExamples:\n"+strings.TrimRight(c.Example, "\n")+"\n")
	}
	switch {
	case !c.HasAvailableSubCommands():
	case c.HasParent():
		printCommands(w, "Commands", available(c))
	default:
		for _, g := range commandGroups {
			printCommands(w, g.title, available(c, g.commands...))
		}
	}
	if c.HasAvailableLocalFlags() {
		writeText(w, "\nFlags:\n"+strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), " \n")+"\n")
	}
	if c.HasAvailableInheritedFlags() {
		flags := strings.TrimRight(c.InheritedFlags().FlagUsagesWrapped(helpWidth), " \n")
		writeText(w, "\nGlobal Flags:\n"+flags+"\n")
	}
	if c.HasAvailableSubCommands() {
		plain.Fprintf(w, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
}

// writeText writes lines of this program's own text as they are.
func writeText(w io.Writer, text string) {
	_, _ = io.WriteString(w, text) // a terminal that is gone reports nothing
}

// printForm writes a form of a command, with more of it below.
func printForm(w io.Writer, form string) {
	for i, line := range layout.Wrap(form, helpWidth-4) {
		plain.Fprintf(w, "\n  %s%s", strings.Repeat("  ", min(i, 1)), line)
	}
}

// printCommands writes the names and descriptions of commands.
func printCommands(w io.Writer, title string, commands []*cobra.Command) {
	width := 0
	for _, c := range commands {
		width = max(width, len(c.Name()))
	}
	plain.Fprintf(w, "\n%s:\n", title)
	for _, c := range commands {
		for i, line := range layout.Wrap(c.Short, helpWidth-helpIndent) {
			name := c.Name()
			if i > 0 {
				name = ""
			}
			plain.Fprintf(w, "  %-*s  %s\n", max(width, helpIndent-4), name, line)
		}
	}
}

// available returns the commands that are shown, of all or of those named, in their order.
func available(parent *cobra.Command, names ...string) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			out = append(out, c)
		}
	}
	if len(names) == 0 {
		return out
	}
	out = slices.DeleteFunc(out, func(c *cobra.Command) bool { return !slices.Contains(names, c.Name()) })
	slices.SortFunc(out, func(a, b *cobra.Command) int {
		return cmp.Compare(slices.Index(names, a.Name()), slices.Index(names, b.Name()))
	})
	return out
}
