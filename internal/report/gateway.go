package report

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Gateway shows the work of a gateway, and the cost of its predictions.
func Gateway(d stats.Stats) layout.Sheet {
	s := layout.Sheet{Verb: "gateway stats", Title: gatewayTitle(d)}
	s.Scope = []string{"up " + plain.Duration(d.At.Sub(d.StartedAt)), plain.Count(len(d.Pools), "pool")}
	for _, p := range d.Pools {
		value := "unknown"
		if p.Utilization != nil {
			value = plain.Share(*p.Utilization, 0)
		}
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Utilization of pool " + p.Name, Value: value,
			Note: "of 5 minutes; " + p.UtilizationStatus + " 60% to 80%",
		})
		if p.USDReason != "" {
			s.Gaps = append(s.Gaps, layout.Gap{
				Name: "dollars of pool " + p.Name, Text: p.USDReason + "; its predictions have no cost",
			})
			continue
		}
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Servers of pool " + p.Name, Value: p.AllocatedUSD.String(),
			Note: "used " + p.UsedUSD.String() + ", idle " + p.IdleUSD.String(),
		})
	}
	s.Tables = append(s.Tables, gatewayModels(d), gatewayFits(d), gatewayLevels(d), gatewayOwners(d),
		gatewayTokens(d),
		gatewayServers(d), gatewaySleep(d), gatewayCounts(d))
	for i := len(s.Tables) - 1; i >= 0; i-- {
		if len(s.Tables[i].Rows) == 0 {
			s.Tables = append(s.Tables[:i], s.Tables[i+1:]...)
		}
	}
	return s
}

func gatewayTitle(d stats.Stats) string {
	var answered, rows, batches int64
	for _, m := range d.Models {
		answered, rows, batches = answered+m.Answered, rows+m.BatchedRows, batches+m.Batches
	}
	text := plain.Count(answered, "request") + " answered"
	switch {
	case d.Shadow:
		text += ", forwarded untouched (shadow)"
	case batches > 0:
		text += fmt.Sprintf(", %s rows in %s (mean %s)", money.Thousands(rows),
			plain.Count(batches, "batch", "batches"),
			plain.Number(float64(rows)/float64(batches), 1))
	default:
		text += ", none in a batch"
	}
	return text
}

// orNone formats dollars, or why there are none.
func orNone(v money.Dollars) string {
	if !v.Known() {
		return "–"
	}
	return v.String()
}

func gatewayModels(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Models",
		Head: []string{
			"model", "pool", "requests", "failed", "mean batch", "p50 ms", "p99 ms", "$/prediction",
			"of it idle", "$/M tokens",
		},
		Right: []bool{false, false, true, true, true, true, true, true, true, true},
	}
	for _, m := range d.Models {
		mean, p50, p99 := "–", "–", "–"
		if m.MeanBatch != nil {
			mean = plain.Number(*m.MeanBatch, 1)
		}
		if m.Shadow != nil && m.Shadow.MeanBatch != nil {
			mean = "would be " + plain.Number(*m.Shadow.MeanBatch, 1)
		}
		if m.LatencyMS != nil {
			p50, p99 = plain.Number(m.LatencyMS.P50, 1), plain.Number(m.LatencyMS.P99, 1)
		}
		g.Rows = append(g.Rows, []string{
			m.Model, m.Pool, money.Thousands(m.Requests), money.Thousands(m.Failed), mean, p50, p99,
			orNone(m.PerPrediction.AllocatedUSD), orNone(m.PerPrediction.IdleUSD),
			orNone(m.PerMillionTokens.AllocatedUSD),
		})
	}
	return g
}

func gatewayFits(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Time of a batch of n rows: a·n + b",
		Head:  []string{"model", "upstream", "a ms", "b ms", "rows", "batches", "error"},
		Right: []bool{false, false, true, true, true, true, true},
	}
	for _, m := range d.Models {
		for _, f := range m.Fits {
			a, b, e := "–", "–", "–"
			if f.AMS != nil {
				a, b, e = plain.Number(*f.AMS, 3), plain.Number(*f.BMS, 3), plain.Share(*f.Error, 1)
			}
			g.Rows = append(g.Rows, []string{
				m.Model, f.Upstream, a, b, fmt.Sprintf("%d-%d", f.MinRows, f.MaxRows), strconv.Itoa(f.Batches), e,
			})
		}
	}
	return g
}

// gatewaySleep shows the pools that sleep while no one asks.
func gatewaySleep(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Sleep",
		Head:  []string{"pool", "state", "held requests", "wakes", "cold starts", "p50 s", "p95 s"},
		Right: []bool{false, false, true, true, true, true, true},
	}
	for _, p := range d.Pools {
		if p.Sleep == nil {
			continue
		}
		p50, p95 := "–", "–"
		if p.Sleep.ColdStartP50 != nil && p.Sleep.ColdStartP95 != nil {
			p50, p95 = plain.Number(*p.Sleep.ColdStartP50, 1), plain.Number(*p.Sleep.ColdStartP95, 1)
		}
		g.Rows = append(g.Rows, []string{
			p.Name, p.Sleep.State, strconv.Itoa(p.Sleep.HeldRequests), money.Thousands(p.Sleep.Wakes),
			strconv.Itoa(p.Sleep.ColdStarts), p50, p95,
		})
	}
	return g
}

// gatewayLevels shows completions by the requests that run.
func gatewayLevels(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Completions by running requests",
		Head:  []string{"model", "upstream", "running", "completions", "mean ms", "requests/s", "law"},
		Right: []bool{false, false, true, true, true, true, false},
	}
	for _, m := range d.Models {
		for _, f := range m.ConcurrencyFits {
			law := "–"
			if f.AMS != nil {
				law = fmt.Sprintf("%s ms × running + %s ms (%s error)",
					plain.Number(*f.AMS, 2), plain.Number(*f.BMS, 1), plain.Share(*f.Error, 1))
			}
			for _, l := range f.Levels {
				g.Rows = append(g.Rows, []string{
					m.Model, f.Upstream, plain.Number(l.Running, 1), strconv.Itoa(l.Requests),
					plain.Number(l.LatencyMS, 1), plain.Number(l.RequestsPerSecond, 1), law,
				})
			}
		}
	}
	return g
}

func gatewayOwners(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Owners", Head: []string{
			"owner", "model", "requests", "predictions", "tokens", "used", "idle share", "in all",
		},
		Right: []bool{false, false, true, true, true, true, true, true},
	}
	for _, o := range d.Owners {
		owner := o.Owner
		if owner == "" {
			owner = "unallocated"
		}
		g.Rows = append(g.Rows, []string{
			owner, o.Model, money.Thousands(o.Requests), money.Thousands(o.Predictions),
			money.Thousands(o.InputTokens + o.OutputTokens), orNone(o.UsedUSD),
			orNone(o.IdleUSD), orNone(o.AllocatedUSD),
		})
	}
	return g
}

// gatewayTokens lists the cost of tokens by model and owner.
func gatewayTokens(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Tokens",
		Head: []string{
			"model", "owner", "input", "output", "$/M input", "of it idle", "$/M output", "of it idle",
			"without a cost",
		},
		Right: []bool{false, false, true, true, true, true, true, true, false},
	}
	row := func(model, owner string, input, output int64, in, out stats.UnitCost) {
		if input+output == 0 {
			return
		}
		g.Rows = append(g.Rows, []string{
			model, owner, money.Thousands(input), money.Thousands(output), orNone(in.AllocatedUSD), orNone(in.IdleUSD),
			orNone(out.AllocatedUSD), orNone(out.IdleUSD), cmp.Or(in.Reason, out.Reason),
		})
	}
	for _, m := range d.Models {
		row(m.Model, "all", m.InputTokens, m.OutputTokens, m.PerMillionInputTokens, m.PerMillionOutputTokens)
		for _, o := range d.Owners {
			if o.Pool == m.Pool && o.Model == m.Model {
				row(m.Model, cmp.Or(o.Owner, "unallocated"), o.InputTokens, o.OutputTokens, o.PerMillionInputTokens,
					o.PerMillionOutputTokens)
			}
		}
	}
	return g
}

func gatewayServers(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Model servers", Head: []string{"upstream", "pool", "state", "running"},
		Right: []bool{false, false, false, true}, States: []bool{false, false, true, false},
	}
	for _, p := range d.Pools {
		for _, u := range p.Upstreams {
			state := "healthy"
			switch {
			case u.Draining:
				state = "draining"
			case !u.Healthy:
				state = "unhealthy"
			}
			g.Rows = append(g.Rows, []string{u.URL, p.Name, state, strconv.Itoa(u.Running)})
		}
	}
	return g
}

func gatewayCounts(d stats.Stats) layout.Grid {
	g := layout.Grid{
		Title: "Requests that were refused or sent alone", Head: []string{"reason", "model", "requests"},
		Right: []bool{false, false, true},
	}
	for _, r := range d.Refused {
		g.Rows = append(g.Rows, []string{"refused: " + r.Reason, "", money.Thousands(r.Count)})
	}
	for _, p := range d.PassedThrough {
		g.Rows = append(g.Rows, []string{"sent alone: " + p.Reason, p.Model, money.Thousands(p.Count)})
	}
	return g
}

// Gateways lists the registered gateways with a line per model.
func Gateways(d view.Gateways) layout.Sheet {
	s := layout.Sheet{Verb: "gateway list", Title: plain.Count(len(d.Gateways), "gateway")}
	if len(d.Gateways) == 0 {
		s.Title = "No gateway is registered: list them under serve.gateways in curfew.yaml"
		return s
	}
	g := layout.Grid{
		Title: "Models",
		Head: []string{
			"gateway", "pool", "model", "utilization", "requests", "refused", "mean batch",
			"$/prediction", "of it idle",
		},
		Right: []bool{false, false, false, true, true, true, true, true, true},
	}
	for _, one := range d.Gateways {
		if one.Stats == nil {
			s.Gaps = append(s.Gaps, layout.Gap{Name: "gateway " + one.Name, Text: one.Reason})
			continue
		}
		g.Rows = append(g.Rows, gatewayRows(one)...)
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	return s
}

// gatewayRows returns the rows of a gateway's models. Refused requests are counted for the whole
// gateway.
func gatewayRows(one view.Gateway) [][]string {
	var refused int64
	for _, r := range one.Stats.Refused {
		refused += r.Count
	}
	use := map[string]string{}
	for _, p := range one.Stats.Pools {
		if use[p.Name] = "unknown"; p.Utilization != nil {
			use[p.Name] = plain.Share(*p.Utilization, 0) + " " + p.UtilizationStatus
		}
	}
	var out [][]string
	for _, m := range one.Stats.Models {
		mean := "–"
		if m.MeanBatch != nil {
			mean = plain.Number(*m.MeanBatch, 1)
		}
		out = append(out, []string{
			one.Name, m.Pool, m.Model, use[m.Pool], money.Thousands(m.Requests), money.Thousands(refused), mean,
			orNone(m.PerPrediction.AllocatedUSD), orNone(m.PerPrediction.IdleUSD),
		})
	}
	return out
}
