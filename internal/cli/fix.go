package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/usage"
)

func (a *app) newFix() *cobra.Command {
	var dryRun, enforce bool
	var output string
	c := &cobra.Command{
		Use:   "fix FINDING…",
		Short: "Show what a finding's fix would do, its risk, and how to take it back",
		Long: `Looks a finding up in the last scan, by its id or any unique prefix of it, and shows
the fix: what it does, what it saves, its risk, what to know before, how far it can
be undone, and the commands that do it by hand. It changes nothing.`,
		Example: `  curfew fix 9c6e
  curfew fix 9c6e 5fbf -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("%s takes the id of a finding, or the beginning of one; `curfew scan` shows them", c.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, ids []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			if enforce {
				return &failure{exit: ExitUsage, code: "not_offered", err: errors.New("--enforce: this version shows fixes and carries none out"),
					hint: "the commands that `curfew fix` shows do it by hand"}
			}
			return a.fix(ids, output)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", true, "change nothing")
	c.Flags().BoolVar(&enforce, "enforce", false, "carry the fix out (not offered by this version)")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// stored is a finding of a kept scan.
type stored struct {
	report.Finding
	scanned time.Time
}

func (a *app) fix(ids []string, output string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	all, err := keptFindings(cfg.DataDir)
	if err != nil {
		return err
	}
	var chosen []stored
	for _, id := range ids {
		var match []stored
		for _, s := range all {
			if id != "" && strings.HasPrefix(s.ID, strings.ToLower(id)) {
				match = append(match, s)
			}
		}
		switch {
		case len(match) == 0:
			return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("no finding of the last scan has an id that begins with %q", id), hint: "curfew scan --all shows them"}
		case len(match) > 1:
			return usageError("%q is the beginning of %d findings: give more of the id", id, len(match))
		}
		if !slices.ContainsFunc(chosen, func(s stored) bool { return s.ID == match[0].ID }) {
			chosen = append(chosen, match[0])
		}
	}
	if output == "json" {
		return a.printJSON(map[string]any{"schema": "curfew.fix/v1", "dry_run": true, "fixes": fixDocs(chosen)})
	}
	for i, s := range chosen {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		a.printFix(s)
	}
	return nil
}

// keptFindings reads the findings of the last scan of every cloud.
func keptFindings(dataDir string) ([]stored, error) {
	files, err := filepath.Glob(filepath.Join(dataDir, "scans", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("look for kept scans: %w", err)
	}
	if dataDir == "" || len(files) == 0 {
		return nil, &failure{exit: ExitError, code: "no_scan", err: errors.New("there is no kept scan to look in"), hint: "run `curfew scan` first"}
	}
	var out []stored
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a kept scan: %w", err)
		}
		doc, err := report.Load(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s: %w", name, err), hint: "run `curfew scan` again"}
		}
		for _, found := range doc.Findings {
			out = append(out, stored{Finding: found, scanned: doc.FinishedAt})
		}
	}
	return out, nil
}

func byHand(f report.Finding) []string {
	evidence := map[string]string{}
	for _, e := range f.Evidence {
		evidence[e.Signal] = e.Value
	}
	return aws.ByHand(aws.Task{Kind: inventory.Kind(f.Resource.Kind), Action: f.Fix.Action, ID: f.Resource.ID, Region: f.Resource.Region,
		Type: f.Resource.Type, Evidence: evidence})
}

func (a *app) printFix(s stored) {
	r := s.Resource
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(a.Stdout, "  %-10s %s\n", label, text)
		}
	}
	prose := func(label, text string) {
		line(label, strings.ReplaceAll(ansi.Wordwrap(text, max(cmp.Or(a.Width, 100)-13, 40), ""), "\n", "\n"+strings.Repeat(" ", 13)))
	}
	name := r.ID
	if r.Name != "" && r.Name != r.ID {
		name = r.Name + " (" + r.ID + ")"
	}
	owner := strings.Trim(r.Owner.Team+"/"+r.Owner.User, "/")
	fmt.Fprintf(a.Stdout, "curfew fix %s   dry run, nothing is changed; as scanned %s ago\n\n", s.ID[:min(8, len(s.ID))], usage.Span(a.Now().Sub(s.scanned)))
	line("finding", s.Rule+", step "+fmt.Sprint(s.Step)+", confidence "+string(s.Confidence))
	line("resource", strings.Join(slices.DeleteFunc([]string{r.Kind, r.Type, name, "account " + r.Account, r.Region}, func(w string) bool { return w == "" }), " "))
	line("owner", cmp.Or(owner, "not known"))
	prose("because", s.Because)
	saves := s.MonthlySavingsUSD.String() + " a month"
	if !s.MonthlySavingsUSD.Known() {
		saves = "not known: " + s.SavingsUnknown
		if s.SavingsUpperBoundUSD.Known() {
			saves = "at most " + s.SavingsUpperBoundUSD.String() + " a month: " + s.SavingsUnknown
		}
	}
	prose("saves", saves)
	line("would do", s.Fix.Action+"   risk "+string(s.Fix.Risk)+", undo "+string(s.Fix.Undo))
	prose("know", s.Fix.Note)
	if r.Lifetime != string(inventory.Ephemeral) {
		line("lifetime", r.Lifetime+": it is treated as persistent, so no policy may act on it")
	}
	label := "by hand"
	for _, cmd := range byHand(s.Finding) {
		line(label, cmd)
		label = ""
	}
}

// fixDoc is a fix in a document.
type fixDoc struct {
	Finding   report.Finding `json:"finding"`
	ScannedAt time.Time      `json:"scanned_at"`
	// ByHand are commands of the AWS CLI; empty where a person has to decide more
	// than a command can say.
	ByHand []string `json:"by_hand"`
}

func fixDocs(chosen []stored) []fixDoc {
	docs := []fixDoc{}
	for _, s := range chosen {
		docs = append(docs, fixDoc{Finding: s.Finding, ScannedAt: s.scanned.UTC(), ByHand: append([]string{}, byHand(s.Finding)...)})
	}
	return docs
}
