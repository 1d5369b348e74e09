package cli

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
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

// priceSchema names the documents of price list and price show.
const priceSchema = "curfew.price/v1"

// priceDoc is a price in a document.
type priceDoc struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Region  string `json:"region,omitempty"`
	Term    string `json:"term"`
	Unit    string `json:"unit"`
	// USD is dollars a unit with every digit.
	USD    string    `json:"usd"`
	Tiers  []tierDoc `json:"tiers,omitempty"`
	Source string    `json:"source"`
	AsOf   string    `json:"as_of"`
	// Own is true for a price of the user's own updates.
	Own bool `json:"own,omitempty"`
}

type tierDoc struct {
	Above int64  `json:"above"`
	USD   string `json:"usd"`
}

type machineDoc struct {
	Type                 string     `json:"type"`
	Cloud                string     `json:"cloud"`
	VCPUs                int        `json:"vcpus"`
	MemoryMiB            int64      `json:"memory_mib"`
	Accelerator          string     `json:"accelerator,omitempty"`
	Accelerators         string     `json:"accelerators,omitempty"`
	AcceleratorMemoryMiB int64      `json:"accelerator_memory_mib,omitempty"`
	NetworkMbps          int64      `json:"network_mbps,omitempty"`
	InstanceStorageGB    int64      `json:"instance_storage_gb,omitempty"`
	Arch                 string     `json:"arch"`
	ReleaseYear          int        `json:"release_year,omitempty"`
	Source               string     `json:"source"`
	AsOf                 string     `json:"as_of"`
	Prices               []priceDoc `json:"prices"`
}

func priceDocOf(e price.Entry, own bool) priceDoc {
	d := priceDoc{Service: e.Service, Name: cmp.Or(e.Type, string(e.Item)), Region: e.Region, Term: string(e.Term), Unit: e.Price.Unit,
		USD: e.Price.Rate.String(), Source: e.Price.Source, AsOf: e.Price.AsOf.Format(time.DateOnly), Own: own}
	for _, t := range e.Price.Tiers {
		d.Tiers = append(d.Tiers, tierDoc{Above: t.Above, USD: t.Rate.String()})
	}
	return d
}

func machineDocOf(m price.Machine) machineDoc {
	d := machineDoc{Type: m.Type, Cloud: m.Cloud, VCPUs: m.VCPUs, MemoryMiB: m.MemoryMiB, Accelerator: m.Accelerator,
		AcceleratorMemoryMiB: m.AcceleratorMemoryMiB, NetworkMbps: m.NetworkMbps, InstanceStorageGB: m.InstanceStorageGB,
		Arch: m.Arch, ReleaseYear: m.ReleaseYear, Source: m.Source, AsOf: m.AsOf.Format(time.DateOnly), Prices: []priceDoc{}}
	if m.AcceleratorMilli > 0 {
		d.Accelerators = devices(m)
	}
	return d
}

// devices prints how many accelerators a machine has: "8", "0.125".
func devices(m price.Machine) string {
	return strconv.FormatFloat(float64(m.AcceleratorMilli)/1000, 'f', -1, 64)
}

func (a *app) newPriceList() *cobra.Command {
	var pattern, region, accelerator, output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List machine types with their prices in a region",
		Example: `  curfew price list --type 'g6*' --region eu-central-1
  curfew price list --accelerator H100 -o csv`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", output, "table", "json", "csv"); err != nil {
				return err
			}
			if _, err := path.Match(pattern, ""); err != nil {
				return usageError("--type %q: it is a name or a pattern such as 'g6*'", pattern)
			}
			book, err := a.book()
			if err != nil {
				return err
			}
			if accelerator != "" {
				known, ok := book.Accelerator(accelerator)
				if !ok {
					return usageError("--accelerator %q: the book knows %s", accelerator, acceleratorNames(book))
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
				return &failure{exit: ExitError, code: "not_found", err: errors.New("no machine type in the price book matches"), hint: "curfew price list shows all"}
			}
			return a.printMachines(book, machines, region, output)
		},
	}
	fl := c.Flags()
	fl.StringVar(&pattern, "type", "*", "machine type or `pattern`")
	fl.StringVar(&region, "region", "us-east-1", "region of the prices")
	fl.StringVar(&accelerator, "accelerator", "", "only machines with this accelerator")
	fl.StringVarP(&output, "output", "o", "table", "table, json or csv")
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

// machinePrices are a machine's prices, in one region or in all.
func machinePrices(book *price.Book, machine, region string) []priceDoc {
	docs := []priceDoc{}
	for _, e := range book.Entries() {
		if e.Type == machine && (region == "" || e.Region == region) {
			docs = append(docs, priceDocOf(e, book.Own(e)))
		}
	}
	return docs
}

func (a *app) printMachines(book *price.Book, machines []price.Machine, region, output string) error {
	switch output {
	case "json":
		docs := make([]machineDoc, 0, len(machines))
		for _, m := range machines {
			d := machineDocOf(m)
			d.Prices = machinePrices(book, m.Type, region)
			docs = append(docs, d)
		}
		return a.printJSON(map[string]any{"schema": priceSchema, "region": region, "machines": docs})
	case "csv":
		w := csv.NewWriter(a.Stdout)
		rows := [][]string{{"type", "accelerator", "accelerators", "vcpus", "memory_gib", "region", "on_demand_usd_per_hour", "spot_usd_per_hour", "source", "as_of"}}
		for _, m := range machines {
			od, spot, p := hourly(book, m.Type, region)
			rows = append(rows, []string{m.Type, m.Accelerator, devices(m), strconv.Itoa(m.VCPUs), gib(m.MemoryMiB), region, od, spot, p.Source, date(p.AsOf)})
		}
		return w.WriteAll(rows)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	plain.Fprintf(w, "type\taccelerator\tvCPU\tmemory\t$/h in %s\tspot $/h\tas of\n", region)
	for _, m := range machines {
		od, spot, p := hourly(book, m.Type, region)
		device := "-"
		if m.Accelerator != "" {
			device = devices(m) + " × " + m.Accelerator
		}
		plain.Fprintf(w, "%s\t%s\t%d\t%s GiB\t%s\t%s\t%s\n", m.Type, device, m.VCPUs, gib(m.MemoryMiB), cmp.Or(od, "no price"), cmp.Or(spot, "-"), date(p.AsOf))
	}
	return w.Flush()
}

// hourly prints a machine's prices an hour; empty where the book has none.
func hourly(book *price.Book, machine, region string) (onDemand, spot string, from price.Price) {
	if p, err := book.OnDemand(machine, region); err == nil {
		onDemand, from = p.Rate.String(), p
	}
	if p, err := book.Spot(machine, region); err == nil {
		spot = p.Rate.String()
		if onDemand == "" {
			from = p
		}
	}
	return onDemand, spot, from
}

func gib(mib int64) string { return plain.Number(float64(mib)/1024, 1) }

func date(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.DateOnly)
}

func (a *app) newPriceShow() *cobra.Command {
	var region, output string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Everything the book knows of a machine type, an accelerator or a rate",
		Example: `  curfew price show p4d.24xlarge
  curfew price show H100
  curfew price show s3:GLACIER --region us-east-1`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("%s takes one name: a machine type, an accelerator or a rate", c.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			book, err := a.book()
			if err != nil {
				return err
			}
			return a.showPrice(book, args[0], region, output)
		},
	}
	c.Flags().StringVar(&region, "region", "", "only this region")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func (a *app) showPrice(book *price.Book, name, region, output string) error {
	if m, ok := book.Machine(strings.TrimPrefix(name, "ml.")); ok {
		d := machineDocOf(m)
		d.Prices = machinePrices(book, m.Type, region)
		if output == "json" {
			return a.printJSON(map[string]any{"schema": priceSchema, "machine": d})
		}
		plain.Fprintf(a.Stdout, "%s   %d vCPU, %s GiB, %s", d.Type, d.VCPUs, gib(d.MemoryMiB), d.Arch)
		if d.Accelerator != "" {
			plain.Fprintf(a.Stdout, ", %s × %s with %s GiB each", d.Accelerators, d.Accelerator, gib(d.AcceleratorMemoryMiB))
		}
		plain.Fprintf(a.Stdout, "\n%s, %s\n\n", d.Source, d.AsOf)
		return a.printPrices(d.Prices)
	}
	if d, ok := book.Accelerator(name); ok {
		if output == "json" {
			return a.printJSON(map[string]any{"schema": priceSchema, "accelerator": map[string]any{
				"name": d.Name, "vendor": d.Vendor, "generation": d.Generation, "memory_mib": d.MemoryMiB, "memory_bandwidth_gbps": d.MemoryBandwidthGBps,
				"bf16_tflops": d.BF16TFLOPS, "precision": d.Precision, "fp8_tflops": d.FP8TFLOPS, "tdp_watts": d.TDPWatts, "mig": d.MIG,
				"release_year": d.ReleaseYear, "source": d.Source, "as_of": date(d.AsOf)}})
		}
		w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
		plain.Fprintf(w, "%s\t%s %s, %d\n", d.Name, d.Vendor, d.Generation, d.ReleaseYear)
		plain.Fprintf(w, "memory\t%s GiB at %s GB/s\n", gib(d.MemoryMiB), figure(d.MemoryBandwidthGBps))
		plain.Fprintf(w, "dense %s\t%s TFLOP/s\n", cmp.Or(d.Precision, "bf16"), figure(d.BF16TFLOPS))
		plain.Fprintf(w, "dense fp8\t%s TFLOP/s\n", figure(d.FP8TFLOPS))
		plain.Fprintf(w, "power\t%d W\n", d.TDPWatts)
		plain.Fprintf(w, "MIG\t%v\n", d.MIG)
		plain.Fprintf(w, "source\t%s, %s\n", d.Source, date(d.AsOf))
		return w.Flush()
	}
	var docs []priceDoc
	for _, e := range book.Entries() {
		if (string(e.Item) == name || e.Type == name) && (region == "" || e.Region == region || e.Region == "") {
			docs = append(docs, priceDocOf(e, book.Own(e)))
		}
	}
	if len(docs) == 0 {
		return &failure{exit: ExitError, code: "no_price", err: fmt.Errorf("the price book holds nothing named %q%s", name, book.DidYouMean(name)),
			hint: "curfew price list shows its machine types; curfew price update fetches newer prices"}
	}
	if output == "json" {
		return a.printJSON(map[string]any{"schema": priceSchema, "prices": docs})
	}
	return a.printPrices(docs)
}

// figure prints a hardware figure; a dash where the vendor gives none.
func figure(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func (a *app) printPrices(docs []priceDoc) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	plain.Fprintln(w, "region\tterm\tservice\t$\tper\tsource\tas of")
	for _, d := range docs {
		usd := d.USD
		for _, t := range d.Tiers {
			usd += fmt.Sprintf(", %s above %d", t.USD, t.Above)
		}
		source := d.Source
		if d.Own {
			source += " (your update)"
		}
		plain.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(d.Region, "all"), d.Term, d.Service, usd, d.Unit, source, d.AsOf)
	}
	return w.Flush()
}

func (a *app) printJSON(doc any) error {
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
