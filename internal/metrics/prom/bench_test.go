package prom

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
)

var fleetSize = flag.Int("fleet", 1000, "how many machines with 8 GPUs the benchmark reads")

// BenchmarkScanFleet reads 26 hours of a fleet from a real Prometheus: 8 GPUs a machine and
// three metrics per GPU every five minutes. It measures a scan, the first and a later pass, and for
// comparison one range query per machine and metric.
func BenchmarkScanFleet(b *testing.B) {
	from := at.Add(-26 * time.Hour)
	metrics := []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
	machines, server := benchFleet(b, from, metrics)
	for _, bc := range []struct {
		name string
		iv   usage.Interval
	}{
		{"scan", usage.Interval{From: from, To: at, Step: time.Hour}},
		{"first-pass", usage.Interval{From: at.Add(-12 * time.Hour), To: at, Step: time.Minute}},
		{"later-pass", usage.Interval{From: at.Add(-15 * time.Minute), To: at, Step: time.Minute}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				s, err := New(Options{Access: Access{URL: server}})
				if err != nil {
					b.Fatal(err)
				}
				points := 0
				m, err := s.Measure(b.Context(), machines, bc.iv,
					func(*inventory.Resource, usage.SourceInfo) usage.Sink {
						return usage.SinkFunc(func(string, usage.Signal, usage.Point) bool { points++; return true })
					})
				if err != nil || len(m.BlindSpots) > 0 {
					b.Fatal(m.BlindSpots, err)
				}
				b.ReportMetric(float64(s.Asked().Queries), "queries/op")
				b.ReportMetric(float64(s.Asked().Bytes)/1e6, "MB/op")
				b.ReportMetric(float64(points), "points/op")
			}
		})
	}
	b.Run("plain-queries", func(b *testing.B) {
		for b.Loop() {
			var bytes int64
			for _, m := range machines {
				for _, name := range metrics {
					q := url.Values{
						"query": {fmt.Sprintf(`%s{node=%q}`, name, m.ID)}, "start": {fmt.Sprint(from.Unix())},
						"end": {fmt.Sprint(at.Unix())}, "step": {"300"},
					}
					resp, err := http.Get(server + "/api/v1/query_range?" + q.Encode())
					if err != nil {
						b.Fatal(err)
					}
					text, err := io.ReadAll(resp.Body)
					if resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
						b.Fatal(resp.Status, err)
					}
					var answer struct {
						Data struct {
							Result []struct {
								Metric map[string]string `json:"metric"`
								Values [][2]any          `json:"values"`
							} `json:"result"`
						} `json:"data"`
					}
					if err := json.Unmarshal(text, &answer); err != nil || len(answer.Data.Result) != 8 {
						b.Fatal(len(answer.Data.Result), err)
					}
					bytes += int64(len(text))
				}
			}
			b.ReportMetric(float64(len(machines)*len(metrics)), "queries/op")
			b.ReportMetric(float64(bytes)/1e6, "MB/op")
		}
	})
}

// benchFleet starts a server with the history of a fleet.
func benchFleet(b *testing.B, from time.Time, metrics []string) ([]*inventory.Resource, string) {
	var h []prometheus.Series
	var machines []*inventory.Resource
	for i := range *fleetSize {
		id := fmt.Sprintf("i-%d", i)
		machines = append(machines, &inventory.Resource{
			Kind: inventory.KindInstance, Cloud: "aws", ID: id, State: inventory.StateRunning,
		})
		for gpu := range 8 {
			for k, name := range metrics {
				s := prometheus.Series{
					Name: name, Labels: fmt.Sprintf(`gpu="%d",UUID="GPU-%d-%d",node="%s"`, gpu, i, gpu, id),
				}
				for at, n := from, 0; at.Before(from.Add(26 * time.Hour)); at, n = at.Add(5*time.Minute), n+1 {
					s.Points = append(s.Points, prometheus.Point{At: at, V: float64((n*7 + i + gpu + k) % 100)})
				}
				h = append(h, s)
			}
		}
	}
	return machines, prometheus.Start(b, h, "")
}
