package capacity

// Replicas returns the fewest replicas, at least one, that serve a load at a share of their
// capacity, over 0 to 1. The load is in replicas at full capacity.
func Replicas(load, share float64) float64 { return replicasAt(load, share) }
