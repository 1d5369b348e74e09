package cli

import "github.com/spf13/pflag"

// addMetrics adds the flag that names servers with recorded usage.
func (f *sourceFlags) addMetrics(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.Metrics, "metrics-source", nil,
		"`URL` of a Prometheus-compatible server to read GPU and host metrics from, never written to; repeatable "+
			"(default: metrics.sources in curfew.yaml)")
}
