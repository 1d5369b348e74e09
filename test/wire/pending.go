package wire

import (
	"context"
	"sync"
)

// Pending delays changes that a provider does not make at once: moto completes snapshots
// immediately, and cannot stop a training job.
type Pending struct {
	server *Server

	mu sync.Mutex
	on bool
	// pending finishes delayed changes.
	pending []func()
}

func newPending(s *Server) *Pending { return &Pending{server: s} }

// Snapshots makes new snapshots stay pending until they are settled, or complete at once as with
// moto.
func (s *Pending) Snapshots(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = slow
}

// Settle finishes all delayed changes.
func (s *Pending) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.pending {
		end()
	}
	s.pending = nil
}

// learn delays the snapshots created by a response.
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

// stopTrainingJob starts to stop a job.
func (s *Pending) stopTrainingJob(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.becomes("sagemaker", "TrainingJobName", asString(c.Input["TrainingJobName"]),
		map[string]any{"TrainingJobStatus": "Stopping", "SecondaryStatus": "Stopping"},
		map[string]any{"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"})
	return &Reply{}, nil
}
