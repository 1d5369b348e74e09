package mig

import (
	"fmt"
	"strings"
)

// Commands writes the steps as shell commands in order. Draining is a comment, because only the
// owner of a workload can end it. Values known only at run time stand in angle brackets, after the
// command that prints them. Profiles are given by name, as their ids differ between GPUs.
func Commands(steps []Step) []string {
	out := []string{}
	listed := false // the UUIDs have been printed since the last instance was created
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		who := s.Workload
		if who == "" {
			who = "what uses it"
		}
		switch s.Do {
		case DrainGPU:
			out = append(out,
				fmt.Sprintf(
					"# drain GPU %s: end every process on it, because MIG resets it; the next command must print no process", s.GPU),
				fmt.Sprintf("nvidia-smi -i %s --query-compute-apps=pid,name --format=csv,noheader", s.GPU))
		case Enable:
			out = append(out, fmt.Sprintf("nvidia-smi -i %s -mig 1", s.GPU))
		case Create:
			tuples := []string{tuple(s)}
			for i+1 < len(steps) && steps[i+1].Do == Create && steps[i+1].GPU == s.GPU {
				i++
				tuples = append(tuples, tuple(steps[i]))
			}
			out = append(out, fmt.Sprintf("nvidia-smi mig -i %s -cgi %s -C", s.GPU, strings.Join(tuples, ",")))
			listed = false
		case Drain:
			out = append(out,
				fmt.Sprintf("# drain %s on GPU %s, %s at %d: checkpoint, then end its process", who, s.GPU,
					s.Profile, s.Start))
		case Start:
			if !listed {
				out = append(out, "nvidia-smi -L")
				listed = true
			}
			out = append(out,
				fmt.Sprintf("CUDA_VISIBLE_DEVICES=MIG-<uuid:%s> # start %s with this in its environment, in a "+
					"process of its own",
					place(s), who))
		case Destroy:
			id := s.Instance
			if id == "" {
				id = "<instance:" + place(s) + ">"
				out = append(out, fmt.Sprintf("nvidia-smi mig -i %s -lgi", s.GPU))
			}
			out = append(out, fmt.Sprintf("nvidia-smi mig -i %s -gi %s -dci", s.GPU, id),
				fmt.Sprintf("nvidia-smi mig -i %s -gi %s -dgi", s.GPU, id))
		}
	}
	return out
}

// tuple returns a profile with its placement for -cgi.
func tuple(s Step) string { return fmt.Sprintf("%s:%d", s.Profile, s.Start) }

// place names an instance that has no id yet.
func place(s Step) string { return fmt.Sprintf("%s/%s@%d", s.GPU, s.Profile, s.Start) }
