// Command exampledata writes the small recorded files under examples/data that the
// commands of the documents read: usage of a small cluster, hourly demand, offers, spot
// availability, requests, MIG workloads, a bill and counts. It draws them from one seed,
// so the same files come out each time.
//
//	go run ./test/exampledata
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// start is the Monday on which the recorded week begins.
var start = time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)

func main() {
	dir := filepath.Join("examples", "data")
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := write(dir); err != nil {
		fmt.Fprintln(os.Stderr, "exampledata:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		rows func(*rand.Rand) [][]string
	}{
		{"gpus.csv.gz", gpus}, {"hourly.csv.gz", hourly}, {"offers.csv", offers}, {"spot.csv", spot},
		{"requests.csv.gz", requests}, {"workloads.csv", workloads}, {"focus-2026-10.csv", bill},
		{"tokens.csv", tokens}, {"shares.csv", shares},
	} {
		// Each file has its own generator, so that changes to one do not affect the others.
		text, err := encode(f.rows(rand.New(rand.NewPCG(1, hash(f.name)))), strings.HasSuffix(f.name, ".gz"))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func hash(s string) (h uint64) {
	for _, b := range []byte(s) {
		h = h*31 + uint64(b)
	}
	return h
}

func encode(rows [][]string, compressed bool) ([]byte, error) {
	var b bytes.Buffer
	var w io.Writer = &b
	var z *gzip.Writer
	if compressed {
		z, _ = gzip.NewWriterLevel(&b, gzip.BestCompression) // a valid level
		w = z
	}
	if err := csv.NewWriter(w).WriteAll(rows); err != nil {
		return nil, err
	}
	if z != nil {
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// machine is a machine of the recorded cluster and the work that it does.
type machine struct {
	name, kind, team, user, purpose string
	gpus                            int
	memory                          float64 // bytes of one GPU
	// work returns the utilization of a GPU in percent and the share of memory in use at a
	// time since the start.
	work func(r *rand.Rand, at time.Duration, gpu int) (util, held float64)
}

// office reports whether people work at a time: Monday to Friday, 9 to 18 UTC.
func office(at time.Duration) bool {
	day, hour := int(at.Hours())/24, math.Mod(at.Hours(), 24)
	return day%7 < 5 && hour >= 9 && hour < 18
}

func between(r *rand.Rand, low, high float64) float64 { return low + r.Float64()*(high-low) }

// gpus returns a week of a small cluster in five-minute samples.
func gpus(r *rand.Rand) [][]string {
	const gib = 1 << 30
	idle := func(*rand.Rand, time.Duration, int) (float64, float64) { return 0, 0.01 }
	// A notebook computes during some office hours.
	notebook := func(hours ...int) func(*rand.Rand, time.Duration, int) (float64, float64) {
		return func(r *rand.Rand, at time.Duration, _ int) (float64, float64) {
			if office(at) && slices.Contains(hours, int(at.Hours())%24) {
				return between(r, 15, 85), between(r, 0.2, 0.5)
			}
			return 0, 0.02
		}
	}
	training := func(from, to time.Duration) func(*rand.Rand, time.Duration, int) (float64, float64) {
		return func(r *rand.Rand, at time.Duration, _ int) (float64, float64) {
			if at >= from && at < to {
				return between(r, 88, 99), between(r, 0.8, 0.85)
			}
			return 0, 0.01
		}
	}
	day := 24 * time.Hour
	all := []machine{
		{"train-a", "p4d.24xlarge", "vision", "ana", "training", 8, 40 * gib, training(8*time.Hour, 3*day)},
		{"train-b", "g5.12xlarge", "vision", "ben", "training", 4, 24 * gib, training(day, 6*day)},
		{
			"sweep-1", "g5.2xlarge", "ranking", "hana", "experimentation", 1, 24 * gib,
			training(2*day, 2*day+9*time.Hour),
		},
		{
			"sweep-2", "g5.2xlarge", "ranking", "hana", "experimentation", 1, 24 * gib,
			training(2*day, 2*day+11*time.Hour),
		},
		{
			"notebook-ana", "g5.xlarge", "vision", "ana", "experimentation", 1, 24 * gib,
			notebook(9, 10, 11, 13, 15, 16),
		},
		{"notebook-emeka", "g5.xlarge", "language", "emeka", "experimentation", 1, 24 * gib, notebook(10, 14)},
		{"notebook-left", "g5.4xlarge", "language", "dmitri", "experimentation", 1, 24 * gib, idle},
		{"eval-held", "g5.12xlarge", "language", "fatima", "evaluation", 4, 24 * gib,
			func(r *rand.Rand, at time.Duration, _ int) (float64, float64) {
				if at < day {
					return between(r, 40, 90), 0.9
				}
				return 0, 0.9 // the process waits and keeps its memory
			}},
		{"serve-1", "g5.2xlarge", "search", "ida", "inference", 1, 24 * gib,
			func(r *rand.Rand, at time.Duration, _ int) (float64, float64) {
				daily := 1 + math.Sin(2*math.Pi*(at.Hours()-9)/24)
				return 4 + 14*daily*between(r, 0.7, 1.3), 0.55
			}},
	}
	rows := [][]string{
		{
			"resource", "time", "gpu", "gpu_util", "mem_used_bytes", "mem_total_bytes", "type",
			"team", "user", "purpose",
			"lifetime",
		},
	}
	for _, m := range all {
		for at := time.Duration(0); at < 7*day; at += 5 * time.Minute {
			for gpu := range m.gpus {
				util, held := m.work(r, at, gpu)
				rows = append(rows, []string{m.name, start.Add(at).Format(time.RFC3339), strconv.Itoa(gpu),
					strconv.FormatFloat(math.Round(util), 'f', -1, 64),
					strconv.FormatFloat(math.Round(held*100)/100*m.memory, 'f', 0,
						64),
					strconv.FormatFloat(m.memory, 'f', 0, 64), m.kind, m.team, m.user, m.purpose, "ephemeral"})
			}
		}
	}
	return rows
}

// hourly returns the demand for three types over 120 days: steady, during office hours, in bursts.
func hourly(r *rand.Rand) [][]string {
	rows := [][]string{{"time", "key", "quantity", "on_demand_rate"}}
	from := start.AddDate(0, 0, -120)
	burst := 0
	for h := range 120 * 24 {
		at := from.Add(time.Duration(h) * time.Hour)
		steady := 6 + r.IntN(2)
		people := 1
		if wd := at.Weekday(); wd >= time.Monday && wd <= time.Friday && at.Hour() >= 8 && at.Hour() < 19 {
			people = 5 + r.IntN(3)
		}
		switch {
		case burst > 0:
			burst--
		case r.Float64() < 0.01:
			burst = 12 + r.IntN(36)
		}
		for _, row := range []struct {
			key, rate string
			n         int
		}{
			{"g5.2xlarge", "1.212", steady}, {"g5.xlarge", "1.006", people},
			{"p4d.24xlarge", "21.957642", min(burst, 1)},
		} {
			rows = append(rows, []string{at.Format(time.RFC3339), row.key, strconv.Itoa(row.n), row.rate})
		}
	}
	return rows
}

// offers returns one-year reserved prices of those types and a savings plan for all of them.
func offers(*rand.Rand) [][]string {
	return [][]string{
		{"key", "kind", "term_months", "payment", "hourly_rate", "upfront", "discount"},
		{"g5.2xlarge", "reserved", "12", "no-upfront", "0.7636", "0", ""},
		{"g5.xlarge", "reserved", "12", "no-upfront", "0.6338", "0", ""},
		{"p4d.24xlarge", "reserved", "12", "no-upfront", "14.4920", "0", ""},
		{"*", "savings-plan", "12", "no-upfront", "", "", "0.28"},
	}
}

// spot returns 21 days of spot availability in three zones, as runs and outages.
func spot(r *rand.Rand) [][]string {
	rows := [][]string{{"zone", "time", "length", "up"}}
	for _, zone := range []struct {
		name     string
		up, down float64 // mean minutes
	}{{"us-east-1a", 420, 90}, {"us-east-1b", 240, 120}, {"us-east-1c", 900, 300}} {
		at, up := 0, 1
		for at < 21*24*3600 {
			mean := zone.up
			if up == 0 {
				mean = zone.down
			}
			length := int(math.Ceil(r.ExpFloat64()*mean/5))*300 + 300
			rows = append(rows, []string{zone.name, strconv.Itoa(at), strconv.Itoa(length), strconv.Itoa(up)})
			at, up = at+length, 1-up
		}
	}
	return rows
}

// requests returns ten minutes of requests to a model, with a peak in the middle.
func requests(r *rand.Rand) [][]string {
	rows := [][]string{{"time"}}
	for at := 0.0; at < 600; {
		at += r.ExpFloat64() / (20 + 30*math.Sin(math.Pi*at/600))
		rows = append(rows, []string{
			start.Add(time.Duration(at * float64(time.Second))).Format("2006-01-02T15:04:05.000Z07:00"),
		})
	}
	return rows
}

// workloads returns models to serve on slices of GPUs.
func workloads(*rand.Rand) [][]string {
	return [][]string{
		{"name", "memory_gib", "compute_slices", "count"},
		{"embedder", "4", "1", "9"}, {"reranker", "9", "2", "4"}, {"captioner", "18", "3", "3"},
		{"summarizer", "36", "4", "2"},
	}
}

// bill returns October of a small account in FOCUS 1.0, with a row for each resource and day.
func bill(r *rand.Rand) [][]string {
	rows := [][]string{
		{
			"BilledCost", "EffectiveCost", "ListCost", "BillingAccountId", "SubAccountId", "BillingCurrency",
			"BillingPeriodStart", "BillingPeriodEnd",
			"ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeDescription",
			"ServiceCategory", "ServiceName",
			"ProviderName", "ResourceId", "RegionId",
			"ConsumedQuantity", "ConsumedUnit", "Tags"}}
	month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	for d := range 31 {
		day := month.AddDate(0, 0, d)
		for _, x := range []struct {
			service, category, what, resource, unit, tags string
			rate, low, high                               float64
		}{
			{
				"Amazon Elastic Compute Cloud", "Compute", "p4d.24xlarge instance hours", "i-0a11",
				"Hours", `{"team":"vision"}`,
				21.957642, 4, 24,
			},
			{
				"Amazon Elastic Compute Cloud", "Compute", "g5.2xlarge instance hours", "i-0b22",
				"Hours", `{"team":"search"}`,
				1.212, 24, 24,
			},
			{
				"Amazon Elastic Compute Cloud", "Compute", "g5.4xlarge instance hours", "i-0c33",
				"Hours", `{"team":"language"}`,
				1.624, 24, 24,
			},
			{
				"Amazon Simple Storage Service", "Storage", "standard storage", "arn:aws:s3:::acme-datasets", "GB-Mo",
				`{"team":"vision"}`, 0.023, 19.4, 20.6,
			},
			{
				"Amazon Elastic Compute Cloud", "Networking", "data transfer out to the Internet", "", "GB", "", 0.09,
				20, 140,
			},
		} {
			quantity := math.Round(between(r, x.low, x.high)*1000) / 1000
			cost := strconv.FormatFloat(quantity*x.rate, 'f', 6, 64)
			rows = append(rows, []string{
				cost, cost, cost, "999988887777", "111122223333", "USD", month.Format(time.RFC3339),
				month.AddDate(0, 1, 0).Format(time.RFC3339),
				day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339), "Usage", x.what,
				x.category, x.service, "AWS",
				x.resource, "us-east-1",
				strconv.FormatFloat(quantity, 'f', -1, 64), x.unit, x.tags})
		}
	}
	return rows
}

// tokens returns the number of served tokens on each day of October.
func tokens(r *rand.Rand) [][]string {
	rows := [][]string{{"time", "count"}}
	for d := range 31 {
		rows = append(rows, []string{
			time.Date(2026, 10, 1+d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly),
			strconv.Itoa(int(between(r, 140e6, 210e6))),
		})
	}
	return rows
}

// shares returns the shares of shared machines given to workloads.
func shares(*rand.Rand) [][]string {
	return [][]string{
		{"resource", "workload", "share", "used"},
		{"i-0a11", "pretraining", "5/8", "90%"}, {"i-0a11", "evaluation", "2/8", "40%"},
		{"i-0b22", "search", "1", "30%"},
	}
}
