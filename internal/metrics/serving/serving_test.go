package serving

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// vllm returns the responses of three replicas of vLLM, by a part of the query.
func vllm() map[string]string {
	return map[string]string{
		"count(up{job=\"embed\"})":                             "3",
		"count(up{job=\"embed\"} == 1)":                        "3",
		"count(count by (instance) (vllm:num_requests_running": "3",
		"min(timestamp(":                                       fmt.Sprint(now.Add(-10 * time.Second).Unix()),
		"sum(vllm:num_requests_running":                        "40",
		"sum(vllm:num_requests_waiting":                        "7",
		"sum(rate(vllm:request_success_total":                  "12.5",
		"max({__name__=~":                                      "0.4",
	}
}

// serve responds to a query by the longest matching part; other queries return no series.
func serve(t *testing.T, answers map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		query, found, value := r.Form.Get("query"), "", ""
		for part, v := range answers {
			if strings.Contains(query, part) && len(part) > len(found) {
				found, value = part, v
			}
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case value == "down":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"status":"error","errorType":"execution","error":"no"}`)
		case value == "partial":
			_, _ = io.WriteString(w, `{"status":"success","warnings":["one store is gone"],"data":{"resultType":"vector","result":[]}}`)
		case value == "":
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		default:
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`,
				now.Unix(), value)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func read(t *testing.T, server string, answers map[string]string) Reading {
	t.Helper()
	r, err := New(Options{
		Access: httpapi.Access{URL: serve(t, answers)}, Server: server, Select: `job="embed"`, Step: 15 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Read(context.Background(), now)
}

func TestReadsFleet(t *testing.T) {
	got := read(t, "vllm", vllm())
	s := got.Sample
	if s.Problem != "" || got.Ready != 3 || got.Starting != 0 || !got.Replicas {
		t.Fatalf("got %+v", got)
	}
	if s.InFlight.Or(-1) != 47 || s.Rate.Or(-1) != 12.5 || s.CacheUse.Or(-1) != 0.4 ||
		!s.At.Equal(now.Add(-10*time.Second)) {
		t.Errorf("got %+v", s)
	}
	if d := fleet.Sum(now, []fleet.Sample{s}); !d.Known {
		t.Errorf("demand is unknown: %s", d.Why)
	}
}

// TestIncompleteMetricsAreUnknown checks that missing metrics are not read as zero demand.
func TestIncompleteMetricsAreUnknown(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"no target": func(a map[string]string) { clear(a) },
		"a silent replica": func(a map[string]string) {
			a["count((max_over_time(up"] = "1"
			a[`count(up{job="embed"} == 1)`] = "2"
		},
		"a replica without it": func(a map[string]string) { a["count(count by (instance) (vllm:num_requests_running"] = "2" },
		"no queue":             func(a map[string]string) { delete(a, "sum(vllm:num_requests_waiting") },
		"a failed query":       func(a map[string]string) { a["sum(vllm:num_requests_waiting"] = "down" },
		"a partial answer":     func(a map[string]string) { a["sum(vllm:num_requests_waiting"] = "partial" },
		"not a number":         func(a map[string]string) { a["sum(vllm:num_requests_running"] = "NaN" },
		"an old scrape": func(a map[string]string) {
			a["min(timestamp("] = fmt.Sprint(now.Add(-time.Minute).Unix())
		},
		"negative": func(a map[string]string) { a["sum(vllm:num_requests_running"] = "-90" },
	} {
		t.Run(name, func(t *testing.T) {
			answers := vllm()
			change(answers)
			got := read(t, "vllm", answers)
			if d := fleet.Sum(now, []fleet.Sample{got.Sample}); d.Known {
				t.Errorf("demand %+v from %+v", d, got.Sample)
			}
		})
	}
}

func TestStartingReplicasAreNotSilent(t *testing.T) {
	answers := vllm()
	answers[`count(up{job="embed"})`] = "5"
	got := read(t, "vllm", answers)
	if got.Sample.Problem != "" || got.Ready != 3 || got.Starting != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestReadsEveryKind(t *testing.T) {
	for _, kind := range Kinds() {
		n := servers[kind]
		answers := map[string]string{
			`count(up{job="embed"})`: "2", `count(up{job="embed"} == 1)`: "2",
			"count(count by (instance) (" + n.anchor: "2",
			"min(timestamp(":                         fmt.Sprint(now.Unix()),
		}
		for _, e := range n.inFlight {
			answers[fmt.Sprintf(e, `{job="embed"}`)] = "3"
		}
		want := float64(3 * len(n.inFlight))
		got := read(t, kind, answers)
		if got.Sample.Problem != "" || got.Sample.InFlight.Or(-1) != want || got.Ready != 2 {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

func TestRefusesOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no such server": {Server: "torchserve", Select: `job="a"`, Step: time.Second},
		"no selection":   {Server: "vllm", Step: time.Second},
		"braces":         {Server: "vllm", Select: `{job="a"}`, Step: time.Second},
		"no step":        {Server: "vllm", Select: `job="a"`},
	} {
		o.Access.URL = "http://127.0.0.1:9090"
		if _, err := New(o); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestIdleReplicas checks which hosts have no request; one busy replica of two keeps its host busy.
func TestIdleReplicas(t *testing.T) {
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = r.Form.Get("query")
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"instance":"10.0.0.1:8000"},"value":[1,"0"]},{"metric":{"instance":"10.0.0.2:8000"},"value":[1,"3"]},
			{"metric":{"instance":"10.0.0.3:8000"},"value":[1,"0"]},{"metric":{"instance":"10.0.0.3:8001"},"value":[1,"2"]},
			{"metric":{"instance":"10.0.0.4:8000"},"value":[1,"NaN"]}]}}`)
	}))
	t.Cleanup(s.Close)
	r, err := New(Options{
		Access: httpapi.Access{URL: s.URL}, Server: "vllm", Select: `job="embed"`, Step: 15 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.idle(t.Context(), now, `{job="embed"}`)
	want := map[string]bool{"10.0.0.1": true, "10.0.0.2": false, "10.0.0.3": false, "10.0.0.4": false}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if asked != `sum by (instance) (vllm:num_requests_running{job="embed"}) + `+
		`sum by (instance) (vllm:num_requests_waiting{job="embed"})` {
		t.Errorf("asked %s", asked)
	}
}
