package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// updateFlags are the flags of price update.
type updateFlags struct {
	from    []string
	regions []string
	profile string
	source  string
	cloud   string
	all     bool
	dryRun  bool
}

func (a *app) newPriceUpdate() *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use:   "update [FILE…]",
		Args:  cobra.ArbitraryArgs,
		Short: "Bring newer prices into the book; implausible ones are refused with the reason",
		Long: `Reads prices from the AWS Price List, from the EC2 spot price history, or from
catalog files (CSV, or JSON of default rates), compares each with the book and its peers,
and stores the plausible ones in the data directory, over the built-in book. A price
that is zero, a placeholder, out of band or inconsistent is refused, and the earlier one
stays.`,
		Example: `  curfew price update --from aws --regions us-east-1,eu-west-1
  curfew price update --from spot --regions us-east-1
  curfew price update catalog.csv --dry-run`,
		RunE: func(c *cobra.Command, files []string) error { return a.updatePrices(c.Context(), f, files) },
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.from, "from", nil, "aws (the AWS Price List) or spot (the EC2 spot price history), or both")
	fl.StringSliceVar(&f.regions, "regions", nil, "regions to read prices of (default: the configured region)")
	fl.StringVar(&f.profile, "profile", "", "AWS profile")
	fl.StringVar(&f.source, "source", "", "what prices from a file cite as their source (default: the file's name)")
	fl.StringVar(&f.cloud, "provider", "", "provider of a file that does not name it")
	fl.BoolVar(&f.all, "all", false, "list every price and refusal, not only the first")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show what would change and keep nothing")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) updatePrices(ctx context.Context, f updateFlags, files []string) error {
	for _, from := range f.from {
		if err := oneOf("from", from, "aws", "spot"); err != nil {
			return err
		}
	}
	if len(files)+len(f.from) == 0 {
		return usageError("curfew price update: give catalog files, or --from aws or --from spot")
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if cfg.DataDir == "" && !f.dryRun {
		return usageError("curfew price update: there is no data directory to keep prices in; give --data-dir")
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	entries, err := a.newPrices(ctx, f, cfg, files)
	if err != nil {
		return err
	}
	next, accepted, refused := book.Update(slices.Values(entries))
	if !f.dryRun && len(accepted) > 0 {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return fmt.Errorf("keep the prices: %w", err)
		}
		if err := durable.Replace(filepath.Join(cfg.DataDir, runtime.PriceFile), 0o600, next.Save); err != nil {
			return fmt.Errorf("keep the prices: %w", err)
		}
	}
	doc := view.NewPriceUpdate(accepted, refused, !f.dryRun)
	if err := a.show(doc, func() report.Sheet { return report.PriceUpdate(doc, f.dryRun, f.all) }); err != nil {
		return err
	}
	if len(accepted) == 0 {
		return &failure{
			exit: ExitError, code: "no_price_accepted",
			err:  fmt.Errorf("none of %d prices was accepted", len(refused)),
			hint: "the book is as it was",
		}
	}
	return nil
}

// newPrices reads all sources before anything is judged, because prices are held
// against one another as well.
func (a *app) newPrices(ctx context.Context, f updateFlags, cfg config.Config, files []string) ([]price.Entry, error) {
	var entries []price.Entry
	for _, name := range files {
		file, err := os.Open(a.path(name))
		if err != nil {
			return nil, &failure{
				exit: ExitUsage, code: "invalid_file",
				err: fmt.Errorf("read catalog %s: %w", name, runtime.Cause(err)),
			}
		}
		o := price.Origin{Source: cmp.Or(f.source, filepath.Base(name)), AsOf: a.Now(), Cloud: f.cloud}
		got, err := collect(price.ReadCatalog(file, o))
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, &failure{
				exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s: %w", name, err),
				hint: "the book is as it was",
			}
		}
		entries = append(entries, got...)
	}
	if len(f.from) == 0 {
		return entries, nil
	}
	regions := cfg.AWS.Regions
	if len(f.regions) > 0 {
		regions = f.regions
	}
	if len(regions) == 0 {
		return nil, usageError("curfew price update: give the regions whose prices to read, --regions us-east-1,…")
	}
	cloud, err := clouds.OpenAWS(ctx, cfg, f.profile, regions)
	if err != nil {
		return nil, clouds.CloudError(err)
	}
	bar := a.newProgress("prices")
	defer bar.Finish()
	for i, region := range regions {
		bar.Report(round.Progress{What: "prices of " + region, Done: i, Total: len(regions)})
		if slices.Contains(f.from, "aws") {
			if err := products(ctx, cloud, region, &entries); err != nil {
				return nil, clouds.CloudError(err)
			}
		}
		if slices.Contains(f.from, "spot") {
			if err := a.spotPrices(ctx, cloud, region, &entries); err != nil {
				return nil, clouds.CloudError(err)
			}
		}
	}
	return entries, nil
}

// products reads the parts of the Price List that hold a price of the book, for one region.
func products(ctx context.Context, cloud *clouds.AWS, region string, entries *[]price.Entry) error {
	for _, list := range price.Lists() {
		filters := map[string]string{"regionCode": region}
		maps.Copy(filters, list.Attributes)
		err := cloud.Products(ctx, list.Service, filters, func(document []byte) error {
			found, err := price.ParseProduct(document)
			switch {
			case errors.Is(err, price.ErrNotHeld), errors.Is(err, price.ErrRefused):
				return nil
			case err != nil:
				return err
			}
			*entries = append(*entries, found...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// spotPrices reads the newest spot price of every zone for all machine types.
func (a *app) spotPrices(ctx context.Context, cloud *clouds.AWS, region string, entries *[]price.Entry) error {
	type market struct{ machine, zone string }
	newest := map[market]clouds.SpotPrice{}
	err := cloud.SpotPrices(ctx, region, nil, a.Now(), func(p clouds.SpotPrice) error {
		key := market{p.Type, p.Zone}
		if old, ok := newest[key]; !ok || p.Time.After(old.Time) {
			newest[key] = p
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range newest {
		e, err := price.SpotEntry(p.Type, p.Region, p.Zone, p.Price, p.Time)
		if err != nil {
			return err
		}
		*entries = append(*entries, e)
	}
	return nil
}

func collect(seq iter.Seq2[price.Entry, error]) ([]price.Entry, error) {
	var out []price.Entry
	for e, err := range seq {
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}
