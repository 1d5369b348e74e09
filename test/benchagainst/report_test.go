package main

import (
	"strings"
	"testing"
	"time"
)

func TestRatiosOverTheLimitFail(t *testing.T) {
	costs := func(ms ...int) (all []cost) {
		for _, n := range ms {
			all = append(all, cost{
				wall: time.Duration(n) * time.Millisecond, cpu: time.Duration(n) * time.Millisecond,
			})
		}
		return all
	}
	for _, tc := range []struct {
		name        string
		before, now []cost
		line, over  string
	}{
		{
			"equal", costs(10, 20, 30), costs(10, 20, 30), "processors 1.00 (1.00 to 1.00)  clock 1.00 (1.00 to 1.00)",
			"",
		},
		{
			"slower", costs(10, 20, 30), costs(15, 25, 60),
			"processors 1.50 (1.25 to 2.00)  clock 1.50 (1.25 to 2.00)",
			"over 1.2: Rules by processors 1.50, Rules by clock 1.50",
		},
		{
			"one run of three", costs(10, 20, 30), costs(30, 20, 30),
			"processors 1.00 (1.00 to 3.00)  clock 1.00 (1.00 to 3.00)", "",
		},
		{
			"most runs", costs(10, 20, 30, 40), costs(10, 40, 60, 80),
			"processors 2.00 (1.00 to 2.00)  clock 2.00 (1.00 to 2.00)", "over 1.2: Rules by processors 2.00",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := printRatios([]result{{"Rules", [2][]cost{before: tc.before, now: tc.now}}}, &out)
			if !strings.Contains(out.String(), "Rules     "+tc.line) {
				t.Errorf("got\n%s\nwant %s", &out, tc.line)
			}
			if got := errorText(err); got != tc.over {
				t.Errorf("got %q, want %q", got, tc.over)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRejectsMissingRevision(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), nil, &out); err == nil || out.Len() > 0 {
		t.Errorf("got %v, and %q", err, &out)
	}
}
