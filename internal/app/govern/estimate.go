package govern

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
)

// EstimateOptions are the inputs of an estimate in addition to its file. Regions are compared if
// the file names none; Nodes and History are file names, or empty.
type EstimateOptions struct {
	Regions        []string
	Nodes, History string
	// NodesText and HistoryText are the contents of these files where they are not on this machine.
	NodesText, HistoryText string
	// In replaces the file "-", and Called is its display name; empty is "-".
	In     io.Reader
	Called string
	// Code includes the code in the workdir of a job in its hash.
	Code bool
}

// Estimate estimates the cost of a file's content.
func Estimate(ctx context.Context, req *runtime.Request, cfg config.Config, name string, f EstimateOptions) (
	*estimate.Estimate, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	p := estimate.Params{Now: req.Now().UTC(), Tags: &cfg.Tags}
	if p.DataRegions, err = dataRegions(ctx, req, cfg); err != nil {
		return nil, err
	}
	p.Defaults.Regions = f.Regions
	for _, regions := range [][]string{cfg.Estimate.Regions, cfg.AWS.Regions} {
		if len(p.Defaults.Regions) == 0 {
			p.Defaults.Regions = regions
		}
	}
	p.Defaults.Runtime, p.Defaults.Nodes = cfg.Estimate.Runtime, cfg.Estimate.Nodes
	if f.Nodes != "" {
		if p.Defaults.Nodes, err = runtime.Given(req, f.Nodes, f.NodesText, estimate.ReadNodes); err != nil {
			return nil, err
		}
	}
	if cfg.Spot.InterruptionsPerHour > 0 {
		p.Defaults.Interruptions = spot.Configured(cfg.Spot.InterruptionsPerHour)
	}
	if p.Defaults.Advisor, err = req.Advisor(cfg.Spot.Advisor); err != nil {
		return nil, err
	}
	if runs := cmp.Or(f.History, cfg.Spot.Runs); runs != "" {
		if p.History, err = runtime.Given(req, runs, f.HistoryText, estimate.ReadRuns); err != nil {
			return nil, err
		}
	}
	if req.Storage.Exists(cfg) {
		s, err := req.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		own, err := PastRuns(ctx, s)
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		p.History = append(p.History, own...)
	}
	src, err := req.Read(name, f.In, estimate.MaxPlan)
	if err != nil {
		return nil, err
	}
	code := func(*spec.Spec) error { return nil }
	if f.Code && name != "-" && !req.Storage.Serves() {
		code = func(s *spec.Spec) error {
			if s.Kind != spec.Job || s.Workdir == "" {
				return nil
			}
			dir := filepath.Join(filepath.Dir(req.Path(name)), filepath.FromSlash(s.Workdir))
			_, s.Code, err = PackCode(ctx, dir, req.Path(cfg.DataDir))
			return err
		}
	}
	e, err := estimated(cmp.Or(f.Called, name), src, cfg.Estimate.Devices, book, p, code)
	var broken *document.Error
	if errors.As(err, &broken) {
		return nil, err
	}
	return e, runtime.PlanError(err)
}

// bucketWindow is how far back the ledger is searched for buckets.
const bucketWindow = 60 * 24 * time.Hour

// dataRegions returns the regions of buckets, by the configuration and by the ledger if there is
// one.
func dataRegions(ctx context.Context, req *runtime.Request, cfg config.Config) (map[string]string, error) {
	if !req.Storage.Exists(cfg) {
		return maps.Clone(cfg.Estimate.DataRegions), nil
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return DataRegions(ctx, s, cfg, req.Now())
}

// DataRegions returns the regions of buckets: configured ones, otherwise those seen by rounds.
func DataRegions(ctx context.Context, s *store.Store, cfg config.Config, now time.Time) (map[string]string, error) {
	regions := map[string]string{}
	until := now.UTC().Truncate(time.Hour).Add(time.Hour)
	sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{
		By: []ledger.Dimension{ledger.ByResource, ledger.ByRegion}, Since: until.Add(-bucketWindow), Until: until,
		Filter: ledger.Filter{{By: ledger.ByKind, Values: []string{string(inventory.KindBucket)}}}})
	if err != nil {
		return nil, fmt.Errorf("look where buckets are: %w", err)
	}
	for _, b := range sums {
		regions[b.Key[0][strings.LastIndex(b.Key[0], "/")+1:]] = b.Key[1]
	}
	maps.Copy(regions, cfg.Estimate.DataRegions)
	return regions, nil
}

// estimated estimates the content of a file of any kind. code adds the hash of the code to a
// specification.
func estimated(name string, src []byte, devices spec.Devices, book *price.Book, p estimate.Params,
	code func(*spec.Spec) error) (*estimate.Estimate, error) {
	if isTerraform(src) {
		return estimate.FromTerraform(bytes.NewReader(src), name, book, p)
	}
	specs, err := spec.Read(name, src, devices)
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		if err := code(s); err != nil {
			return nil, err
		}
	}
	return estimate.File(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), specs, book, p)
}

// isTerraform reports whether a text is output of `terraform show -json`.
func isTerraform(src []byte) bool {
	var top struct {
		FormatVersion    string          `json:"format_version"`
		TerraformVersion string          `json:"terraform_version"`
		PlannedValues    json.RawMessage `json:"planned_values"`
	}
	return json.Unmarshal(src, &top) == nil && top.FormatVersion != "" &&
		(top.TerraformVersion != "" || top.PlannedValues != nil)
}

// MaxPlan limits the size of estimated files in bytes.
const MaxPlan = estimate.MaxPlan

// EstimateInForce is [Estimate] with the configuration in force, which includes the shared settings
// in a service.
func EstimateInForce(ctx context.Context, req *runtime.Request, name string, f EstimateOptions) (*estimate.Estimate,
	error) {
	cfg, err := req.Config()
	if err == nil && req.Storage.Serves() {
		cfg, _, err = identity.PeopleInForce(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	return Estimate(ctx, req, cfg, name, f)
}
