package clouds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Setting returns what every round reads: the account, recorded usage and prices.
func Setting(ctx context.Context, req *runtime.Request, cfg config.Config, f Source) (round.Setting, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return round.Setting{}, err
	}
	sources, err := recordings(ctx, req, f)
	if err != nil {
		return round.Setting{}, err
	}
	lister, err := Lister(ctx, req, f, cfg, book, req.Now().UTC())
	if err != nil {
		return round.Setting{}, err
	}
	servers, err := MetricsSources(req, cfg, f)
	if err != nil {
		return round.Setting{}, err
	}
	sources = append(sources, asUsage(servers)...)
	if own, ok := lister.(*local.Fleet); ok {
		book = book.With(own.Prices()...)
	}
	if measures, ok := lister.(usage.Source); ok {
		sources = append(sources, measures)
	}
	s := round.Setting{Clock: req.Now, Lister: lister, Sources: sources, Prices: book, Duty: cfg.Duty}
	if len(servers) > 0 {
		s.Owners = (&owners{servers: servers, tags: cfg.Tags}).learn
	}
	return s, nil
}

// SimSeed is the seed of the simulated account, the same on every machine.
const SimSeed = 1

// Source is one account to read, with its recorded usage.
type Source struct {
	Cloud       string
	Regions     []string
	AssumeRoles []string
	Profile     string
	// Alone reads only the account of AssumeRoles, or without any that of the credentials.
	Alone bool
	// Usage are files of recorded samples; Columns, Step and Resource describe how to read them.
	Usage []string
	// TZ is the time zone of times without one.
	Columns, Step, Resource, TZ string
	// Metrics are the addresses of servers with recorded usage.
	Metrics []string
	// Transient is true if nothing is stored.
	Transient bool
}

// CloudError adds the next step to an error that left nothing to read.
func CloudError(err error) error {
	f := &runtime.Error{Code: "error", Err: err}
	var file *usage.FileError
	switch {
	case unknownRegion(err):
		f.Class, f.Code, f.Hint = runtime.Usage, "unknown_region", "give --regions us-east-1,… (--region us-east-1 of up and run) or set AWS_REGION"
	case errors.As(err, &file):
		f.Class, f.Code, f.Hint = runtime.Usage, "invalid_file",
			"--map, --step, --resource and --tz say how to read a file (curfew scan --help)"
	case errors.Is(err, inventory.ErrUnauthenticated):
		f.Code, f.Hint = "no_credentials",
			"sign in (aws sso login), or set AWS_PROFILE; `curfew scan --demo` needs none"
	case errors.Is(err, inventory.ErrDenied):
		f.Class, f.Code, f.Hint = runtime.Denied, "denied",
			"`curfew scan --print-iam-policy` prints the permissions it needs"
	case errors.Is(err, inventory.ErrUnavailable):
		f.Code, f.Hint = "unreachable", "check the network, the region and AWS_ENDPOINT_URL"
	}
	return f
}

// recordings opens the files of --usage.
func recordings(ctx context.Context, req *runtime.Request, f Source) ([]usage.Source, error) {
	var step time.Duration
	if f.Step != "" {
		var err error
		if step, err = config.ParseDuration(f.Step); err != nil || step <= 0 {
			return nil, runtime.Invalid("--step %q: it is a duration such as 60s", f.Step)
		}
	}
	if len(f.Usage) == 0 {
		if f.Step != "" || f.Resource != "" || f.Columns != "" || f.TZ != "" {
			return nil, runtime.Invalid(
				"--map, --step, --resource and --tz describe the file of --usage, which is missing")
		}
		return nil, nil
	}
	columns, err := usage.ParseMap(f.Columns)
	if err != nil {
		return nil, runtime.Invalid("--map: %w", err)
	}
	location, err := Location(f.TZ)
	if err != nil {
		return nil, runtime.Invalid("--tz %w", err)
	}
	var out []usage.Source
	for _, name := range f.Usage {
		path, err := Regular(req, name)
		if err != nil {
			return nil, err
		}
		if st, err := os.Stat(path); err != nil || st.IsDir() {
			if err == nil {
				err = errors.New("it is a directory")
			}
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file",
				Err: fmt.Errorf("read recorded usage %s: %w", name, runtime.Cause(err)),
			}
		}
		r := Recording{
			Path: path, Format: usage.Format{
				Name: name, Map: columns, Resource: f.Resource, Step: step, Location: location,
			},
		}
		if err := Prepare(ctx, req, path, &r.Format); err != nil {
			return nil, err
		}
		out = append(out, round.RecordedSource(r))
	}
	return out, nil
}

// Recording is a file of recorded usage.
type Recording struct {
	Path   string
	Format usage.Format
}

// Name implements [round.Recording].
func (r Recording) Name() string { return r.Format.Name }

// Collect reads the file. The step is inferred unless a flag gives it.
func (r Recording) Collect(ctx context.Context, resolve func(name string, step time.Duration) usage.Sink) (
	usage.Summary, error) {
	file, err := config.Open(r.Path)
	if err != nil {
		return usage.Summary{}, err
	}
	defer file.Close()
	format := r.Format
	if err := SettleStep(ctx, file, &format); err != nil {
		return usage.Summary{}, err
	}
	return usage.Collect(ctx, file, format, func(name string) usage.Sink { return resolve(name, format.Step) })
}

// SettleStep determines the step of a file of recorded usage unless a flag gives it, and rewinds
// the file.
func SettleStep(ctx context.Context, file io.ReadSeeker, format *usage.Format) (err error) {
	if format.Step != 0 {
		return nil
	}
	if format.Step, err = usage.InferStep(ctx, file, *format); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read %s again: %w", format.Name, err)
	}
	return nil
}

// NewFleet returns the machines that the configuration lists. own is this machine as a provider of
// sessions, or nil.
func NewFleet(cfg config.Config, book *price.Book, own *local.Provider) (*local.Fleet, error) {
	if len(cfg.Machines) == 0 {
		return nil, runtime.Invalid(
			"--cloud onprem: no machine is listed; write them under machines in curfew.yaml (docs/configuration.md)")
	}
	fleet, err := local.NewFleet(local.FleetOptions{
		Machines: cfg.Machines, Rates: cfg.Rates, Tags: cfg.Tags, Prices: book, Sessions: own,
	})
	if err != nil {
		return nil, runtime.Invalid("%w", err)
	}
	return fleet, nil
}

// CloudErrorOrNil is [CloudError] that returns nil for nil.
func CloudErrorOrNil(err error) error {
	if err == nil {
		return nil
	}
	return CloudError(err)
}
