package wire

import (
	"context"
	"sync"
)

// Pending delays changes that a provider does not make at once: moto completes snapshots the moment
// they are made, and has no way to stop a training job.
type Pending struct {
	server *Server

	mu sync.Mutex
	on bool
	// pending ends what is under way.
	pending []func()
}

func newPending(s *Server) *Pending { return &Pending{server: s} }

// Snapshots makes snapshots stay pending from now on, until they are settled, or
// completed at once as moto has it.
func (s *Pending) Snapshots(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = slow
}

// Settle lets the provider finish what is under way.
func (s *Pending) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.pending {
		end()
	}
	s.pending = nil
}

// learn holds back the snapshots that an answer made.
func (s *Pending) learn(c *Call, body []byte) {
	if c.Name() != "ec2:CreateSnapshot" && c.Name() != "ec2:CreateSnapshots" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, err := parseXML(body)
	if !s.on || err != nil {
		return
	}
	for _, id := range doc.All("snapshotId") {
		s.becomes("ec2", "snapshotId", id.Text, map[string]any{"status": "pending"},
			map[string]any{"status": "completed"})
	}
}

// becomes shows something in one state, and in another once it is settled.
func (s *Pending) becomes(service, field, id string, now, then map[string]any) {
	s.server.Patch(Patch{Service: service, IDField: field, ID: id, Set: now})
	s.pending = append(s.pending, func() {
		s.server.Patch(Patch{Service: service, IDField: field, ID: id, Set: then})
	})
}

// stopTrainingJob begins to stop a job.
func (s *Pending) stopTrainingJob(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.becomes("sagemaker", "TrainingJobName", asString(c.Input["TrainingJobName"]),
		map[string]any{"TrainingJobStatus": "Stopping", "SecondaryStatus": "Stopping"},
		map[string]any{"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"})
	return &Reply{}, nil
}
