package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// estimateFlags are the flags of everything that estimates.
type estimateFlags struct {
	regions        []string
	history, nodes string
}

func (f *estimateFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.regions, "regions", nil, "regions to look at where the file names none (default: those of curfew.yaml)")
	fl.StringVar(&f.nodes, "nodes", "", "nodes of the cluster, for manifests that name no machine, as JSON `file` of `kubectl get nodes -o json`")
	fl.StringVar(&f.history, "history", "", "past runs, to learn durations from, as CSV `file`: name,finished,work,machine,machines,spot_time,interruptions,completed")
}

func (a *app) newEstimate() *cobra.Command {
	var f estimateFlags
	c := &cobra.Command{
		Use:   "estimate FILE",
		Short: "Estimate the cost of a job, a session or a Terraform plan",
		Long: `Estimates a job or session file, Kubernetes manifests that ask for GPUs (Pod, Job,
CronJob, JobSet, PyTorchJob, MPIJob, RayJob, Argo Workflow, Deployment), or what
` + "`terraform show -json`" + ` prints: the median cost (p50) and the 95th percentile (p95), line by
line with quantity, unit price, source and date. An unknown price is an error, never zero.`,
		Example: `  curfew estimate job.yaml
  curfew estimate job.yaml --regions us-east-1,us-west-2 -o json
  terraform show -json plan.out > plan.json && curfew estimate plan.json`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			e, err := a.estimate(c.Context(), cfg, args[0], f)
			if err != nil {
				return err
			}
			return a.show(view.NewEstimate(e), func() report.Sheet { return report.Estimate("estimate", e) })
		},
	}
	f.add(c)
	a.outputs(c, reports...)
	return c
}

// oneFile wants one argument.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &failure{exit: ExitUsage, code: "usage", err: fmt.Errorf("%s takes one file, got %d", c.CommandPath(), len(args)),
			hint: "see " + c.CommandPath() + " --help"}
	}
	return nil
}

// estimate says what the content of a file will cost.
func (a *app) estimate(ctx context.Context, cfg config.Config, name string, f estimateFlags) (*estimate.Estimate, error) {
	book, err := a.prices(cfg)
	if err != nil {
		return nil, err
	}
	p := estimate.Params{Now: a.Now().UTC(), Tags: &cfg.Tags}
	if p.DataRegions, err = a.dataRegions(ctx, cfg); err != nil {
		return nil, err
	}
	p.Defaults.Regions = f.regions
	for _, regions := range [][]string{cfg.Estimate.Regions, cfg.AWS.Regions} {
		if len(p.Defaults.Regions) == 0 {
			p.Defaults.Regions = regions
		}
	}
	p.Defaults.Runtime, p.Defaults.Nodes = cfg.Estimate.Runtime, cfg.Estimate.Nodes
	if f.nodes != "" {
		if p.Defaults.Nodes, err = readPlan(a, f.nodes, estimate.ReadNodes); err != nil {
			return nil, err
		}
	}
	if cfg.Spot.InterruptionsPerHour > 0 {
		p.Defaults.Interruptions = spot.Configured(cfg.Spot.InterruptionsPerHour)
	}
	if runs := cmp.Or(f.history, cfg.Spot.Runs); runs != "" {
		if p.History, err = readPlan(a, runs, estimate.ReadRuns); err != nil {
			return nil, err
		}
	}
	src, err := a.read(namedFile{name, a.path(name)}, estimate.MaxPlan)
	if err != nil {
		return nil, err
	}
	e, err := estimated(name, src, book, p)
	var broken *document.Error
	if errors.As(err, &broken) {
		return nil, err
	}
	return e, planFailure(err)
}

// interruptions is how often spot machines are taken away: as configured, or learned from
// the past runs that are configured, or a range.
func (a *app) interruptions(cfg config.Config) (spot.Interruptions, error) {
	if rate := cfg.Spot.InterruptionsPerHour; rate > 0 {
		return spot.Configured(rate), nil
	}
	if cfg.Spot.Runs == "" {
		return spot.Unmeasured(), nil
	}
	runs, err := readPlan(a, cfg.Spot.Runs, estimate.ReadRuns)
	if err != nil {
		return spot.Interruptions{}, err
	}
	return estimate.Interruptions(spot.Unmeasured(), runs, a.Now()), nil
}

// bucketsSeen is how far back the ledger is asked where buckets are.
const bucketsSeen = 60 * 24 * time.Hour

// dataRegions returns the regions of buckets: those of the configuration, and of the
// rest those that rounds saw, where there is a ledger.
func (a *app) dataRegions(ctx context.Context, cfg config.Config) (map[string]string, error) {
	regions := map[string]string{}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, store.FileName)); err == nil || cfg.DatabaseURL != "" {
		s, err := a.open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		until := a.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{By: []ledger.Dimension{ledger.ByResource, ledger.ByRegion}, Since: until.Add(-bucketsSeen), Until: until,
			Filter: ledger.Filter{{By: ledger.ByKind, Values: []string{string(inventory.KindBucket)}}}})
		if err != nil {
			return nil, fmt.Errorf("look where buckets are: %w", err)
		}
		for _, b := range sums {
			regions[b.Key[0][strings.LastIndex(b.Key[0], "/")+1:]] = b.Key[1]
		}
	}
	maps.Copy(regions, cfg.Estimate.DataRegions)
	return regions, nil
}

// read returns a YAML file as a whole, or a JSON file of at most jsonLimit bytes; the name
// "-" is the standard input.
func (a *app) read(f namedFile, jsonLimit int64) ([]byte, error) {
	src, err := func() ([]byte, error) {
		in := a.Stdin
		if f.name != "-" {
			file, err := config.Open(f.path)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", f.name, daemon.Cause(err))
			}
			defer file.Close()
			in = file
		}
		head, limit := bufio.NewReader(in), int64(document.MaxBytes)
		if first, _ := head.Peek(head.Size()); bytes.HasPrefix(bytes.TrimSpace(first), []byte("{")) {
			limit = jsonLimit
		}
		return document.Read(f.name, head, limit)
	}()
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: err}
	}
	return src, nil
}

// estimated estimates whatever a file holds.
func estimated(name string, src []byte, book *price.Book, p estimate.Params) (*estimate.Estimate, error) {
	if isTerraform(src) {
		return estimate.FromTerraform(bytes.NewReader(src), name, book, p)
	}
	specs, err := spec.Read(name, src)
	if err != nil {
		return nil, err
	}
	parts := make([]*estimate.Estimate, 0, len(specs))
	for _, s := range specs {
		e, err := estimate.New(s, book, p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return estimate.Join(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), parts)
}

// isTerraform recognizes what `terraform show -json` prints.
func isTerraform(src []byte) bool {
	var top struct {
		FormatVersion    string          `json:"format_version"`
		TerraformVersion string          `json:"terraform_version"`
		PlannedValues    json.RawMessage `json:"planned_values"`
	}
	return json.Unmarshal(src, &top) == nil && top.FormatVersion != "" && (top.TerraformVersion != "" || top.PlannedValues != nil)
}
