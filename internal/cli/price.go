package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newPrice() *cobra.Command {
	c := &cobra.Command{
		Use:   "price",
		Short: "The price book: what machines and services cost, with source and date",
		Args:  noSuchVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newPriceList(), a.newPriceShow(), a.newPriceUpdate(), a.newPriceWatching())
	return c
}

func (a *app) newPriceList() *cobra.Command {
	var pattern, region, accelerator string
	c := &cobra.Command{
		Use:   "list",
		Short: "List machine types with their prices in a region",
		Example: `  curfew price list --type 'g6*' --region eu-central-1
  curfew price list --accelerator H100 -o csv`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := path.Match(pattern, ""); err != nil {
				return usageError("--type %q: it is a name or a pattern such as 'g6*'", pattern)
			}
			book, err := a.book()
			if err != nil {
				return err
			}
			a.req.CheckRegion(book, region)
			if accelerator != "" {
				known, ok := book.Accelerator(accelerator)
				if !ok {
					return usageError("--accelerator %q: the book knows %s%s", accelerator, acceleratorNames(book),
						book.DidYouMean(accelerator))
				}
				accelerator = known.Name
			}
			var machines []price.Machine
			for _, m := range book.Machines() {
				if ok, _ := path.Match(pattern, m.Type); ok && (accelerator == "" || m.Accelerator == accelerator) {
					machines = append(machines, m)
				}
			}
			if len(machines) == 0 {
				return &failure{
					exit: ExitError, code: "not_found",
					err: fmt.Errorf("no machine type in the price book matches %q%s", pattern,
						book.DidYouMean(pattern)),
					hint: "curfew price list shows all",
				}
			}
			doc := view.NewMachines(book, machines, region)
			if a.format == "csv" {
				return report.MachinesCSV(a.Stdout, doc)
			}
			return a.show(doc, func() report.Sheet { return report.Machines(doc) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&pattern, "type", "*", "machine type or `pattern`")
	fl.StringVar(&region, "region", "us-east-1", "region of the prices")
	fl.StringVar(&accelerator, "accelerator", "", "only machines with this accelerator")
	a.outputs(c, "table", "json", "csv")
	return c
}

func acceleratorNames(book *price.Book) string {
	var names []string
	for _, d := range book.Accelerators() {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// book reads the price book with the configuration's data directory.
func (a *app) book() (*price.Book, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	return a.prices(cfg)
}

func (a *app) newPriceShow() *cobra.Command {
	var region string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a machine type, an accelerator or a rate of the price book",
		Example: `  curfew price show p4d.24xlarge
  curfew price show H100
  curfew price show s3:GLACIER --region us-east-1`,
		Args: oneArg("one name: a machine type, an accelerator or a rate"),
		RunE: func(_ *cobra.Command, args []string) error {
			book, err := a.book()
			if err != nil {
				return err
			}
			a.req.CheckRegion(book, region)
			return a.showPrice(book, args[0], region)
		},
	}
	c.Flags().StringVar(&region, "region", "", "only this region")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) showPrice(book *price.Book, name, region string) error {
	doc, ok := view.NewPriceShow(book, name, region)
	if !ok {
		return &failure{
			exit: ExitError, code: "no_price", err: fmt.Errorf("the price book has no entry %q%s",
				name, book.DidYouMean(name)),
			hint: "curfew price list shows its machine types; curfew price update fetches newer prices"}
	}
	return a.show(doc, func() report.Sheet { return report.PriceShow(doc, name) })
}
