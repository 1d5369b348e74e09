package view

import "github.com/curfew-dev/curfew/internal/money"

// FleetReplaySchema is the schema of replays of recorded arrivals.
const FleetReplaySchema = "curfew.fleet-backtest/v1"

// FleetReplay is the outcome of policies of serving fleets on recorded arrivals.
type FleetReplay struct {
	Schema string `json:"schema"`
	// Requests arrived within Seconds. WorkReplicas is their mean load, in replicas at full rate.
	Requests     int     `json:"requests"`
	Seconds      float64 `json:"seconds"`
	WorkReplicas float64 `json:"work_replicas"`
	// Fleets are the policies, in the order of the files.
	Fleets []ReplayedFleet `json:"fleets"`
	// Assumptions are sentences about the replay that the arrivals do not settle.
	Assumptions []string `json:"assumptions"`
}

// ReplayedFleet is one policy on the arrivals.
type ReplayedFleet struct {
	Policy string `json:"policy"`
	Fleet  string `json:"fleet"`
	// Min, Max and Target are those of the policy.
	Min    int     `json:"min"`
	Max    int     `json:"max"`
	Target float64 `json:"target"`
	// Tuned is the setting that was fitted on the first half of the arrivals; null where none was, or none
	// has as few late answers as the policy.
	Tuned *TunedFleet `json:"tuned"`
	// Results are the policy, and the others to compare it with.
	Results []FleetResult `json:"results"`
}

// TunedFleet is a fitted setting of a fleet.
type TunedFleet struct {
	// Target is that of the policy. Stabilization and Window, in seconds, are those of the fleet in curfew.yaml.
	Target               float64 `json:"target"`
	StabilizationSeconds float64 `json:"stabilization_seconds"`
	WindowSeconds        float64 `json:"window_seconds"`
	// Better is true with fewer replica hours on the second half at no more late answers.
	Better bool `json:"better"`
}

// FleetResult is the outcome of one scaler.
type FleetResult struct {
	// Name is the policy, "tuned", "keda", "knative", "target-tracking" or "fixed-N".
	Name string `json:"name"`
	// Setting is the target, the stabilization and the window of "tuned"; empty elsewhere.
	Setting string `json:"setting"`
	// ReplicaHours are paid, cold starts and draining included.
	ReplicaHours float64 `json:"replica_hours"`
	// CostUSD is null without a price.
	CostUSD money.Dollars `json:"cost_usd"`
	// LateAnswers came after the latency objective; LateShare is of all requests.
	LateAnswers int     `json:"late_answers"`
	LateShare   float64 `json:"late_share"`
	// ColdStarts are replicas that were started after the beginning.
	ColdStarts   int     `json:"cold_starts"`
	MeanReplicas float64 `json:"mean_replicas"`
	MaxReplicas  int     `json:"max_replicas"`
	P50LatencyMS float64 `json:"p50_latency_ms"`
	P99LatencyMS float64 `json:"p99_latency_ms"`
}

// Own returns the result of the policy itself, and false where the document has none.
func (f *ReplayedFleet) Own() (FleetResult, bool) {
	for _, r := range f.Results {
		if r.Name == f.Policy {
			return r, true
		}
	}
	return FleetResult{}, false
}
