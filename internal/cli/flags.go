package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

// The forms of output of most commands: data, and reports that are documents as well.
var (
	tableJSON = []string{"table", "json"}
	reports   = []string{"table", "json", "html", "md"}
)

// formatNotes describe the output formats whose names do not explain them.
var formatNotes = map[string]string{
	"summary": "summary (short Markdown for a pull request or a chat)", "jsonl": "jsonl (an entry a line)",
}

// outputs gives a command the flag -o with the forms that it can print; the first is the
// default.
func (a *app) outputs(c *cobra.Command, formats ...string) {
	a.format = formats[0]
	c.Flags().VarP(ops.NewChoice("output", &a.format, formats), "output", "o", anyOf(formats))
}

// simulated adds the flag by which a command that reads the books reads simulated ones.
func (a *app) simulated(c *cobra.Command) {
	fl := c.Flags().VarPF(&booksFlag{
		&a.req.Process.Storage,
	}, "demo", "", "simulated books: 32 days of the simulated account and its bill; nothing is kept")
	fl.NoOptDefVal = "true"
}

// booksFlag chooses between the state of the configuration and simulated books.
type booksFlag struct{ storage *runtime.Storage }

// String implements pflag.Value.
func (b *booksFlag) String() string {
	if b.storage == nil {
		return "false"
	}
	_, simulated := (*b.storage).(simulation.Books)
	return strconv.FormatBool(simulated)
}

// Set implements pflag.Value.
func (b *booksFlag) Set(text string) error {
	simulated, err := strconv.ParseBool(text)
	*b.storage = runtime.OwnStorage{}
	if simulated {
		*b.storage = simulation.Books{}
	}
	return err
}

// Type implements pflag.Value.
func (b *booksFlag) Type() string { return "bool" }

// anyOf lists forms for help: "table, json, html or md".
func anyOf(formats []string) string {
	last := len(formats) - 1
	if note, ok := formatNotes[formats[last]]; ok {
		return strings.Join(formats[:last], ", ") + ", or " + note
	}
	return strings.Join(formats[:last], ", ") + " or " + formats[last]
}

// say prints the result of a command: its document as JSON, or a message.
func (a *app) say(doc any, format string, args ...any) error {
	if a.format == "json" {
		return a.printJSON(doc)
	}
	return report.Say(a.Stdout, a.Width, a.color(), format, args...)
}
