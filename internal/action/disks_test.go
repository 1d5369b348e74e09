package action_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TestLostDisks names every disk that goes, with its size.
func TestLostDisks(t *testing.T) {
	in := &inventory.Instance{Disks: []inventory.Disk{
		{
			VolumeID: "vol-1", Device: "/dev/xvda", Root: true, DeleteOnTermination: true,
			SizeGiB: inventory.Known[int64](100),
		},
		{VolumeID: "vol-2", Device: "/dev/xvdb", DeleteOnTermination: true}, {VolumeID: "vol-3"}}}
	r := &inventory.Resource{Kind: inventory.KindInstance, State: inventory.StateRunning, Detail: in,
		Size: inventory.Size{InstanceStorageGB: inventory.Known[int64](3800), InstanceDisks: inventory.Known(2)}}
	const local, root, data = "its 2 instance-store disks, 3800 GB", "vol-1 (/dev/xvda), 108 GB", "vol-2 (/dev/xvdb)"
	for _, tc := range []struct {
		do   policy.Do
		want []string
	}{
		{policy.Do{Verb: policy.Stop}, []string{local}},
		{policy.Do{Verb: policy.Stop, ScratchDisks: true}, []string{local}},
		{policy.Do{Verb: policy.Terminate, ScratchDisks: true}, []string{local, root, data}},
		{policy.Do{Verb: policy.Terminate, SaveDisks: true}, []string{local}},
		{policy.Do{Verb: policy.Notify}, nil},
	} {
		var got []string
		for _, l := range action.LostDisks(r, tc.do) {
			got = append(got, l.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%+v differs (-want +got):\n%s", tc.do, diff)
		}
	}
}

// TestConsent: where a machine's disks stand in the way its owner is asked, once, and
// nothing is done; once the owner consents the machine is warned about with what is lost,
// and ended.
func TestConsent(t *testing.T) {
	w := newWorld()
	ears := &ears{Notifier: w.people}
	w.ladder.Notifier = ears
	w.wants.Do = policy.Do{Verb: policy.Stop}
	local := machine("i-1")
	local.LocalGB = 250
	w.cloud.Put(local)
	w.idle("i-2")
	w.rounds(t, 10*time.Minute, time.Minute)
	want(t, w.round(t), "i-1", action.ResultRefused)
	asked := ears.about("i-1")
	if len(asked) != 1 {
		t.Fatalf("asked %d times, want once", len(asked))
	}
	m := asked[0]
	if m.Consent != "curfew consent test/1/here/instance/i-1 --reason TEXT" || len(m.LostDisks) != 1 ||
		m.LostDisks[0].GB != 250 || !m.ActsAt.IsZero() ||
		!strings.Contains(m.Know, m.Consent) || !strings.Contains(m.Because, "its instance-store disk, 250 GB") {
		t.Errorf("asked with %+v", m)
	}
	w.wants.Do.ScratchDisks = true // as the tag makes it
	w.rounds(t, 20*time.Minute, time.Minute)
	if got := w.cloud.Carried("stop"); !slices.Contains(got, "i-1") {
		t.Errorf("stopped %v after the consent", got)
	}
	for _, m := range ears.about("i-1")[1:] {
		if m.Kind == "warning" && !strings.Contains(m.Lost, "its instance-store disk, 250 GB") {
			t.Errorf("the warning does not say what is lost: %q", m.Lost)
		}
	}
	if got := w.audit("i-1"); strings.Count(got, "asked") != 1 {
		t.Errorf("the audit log has %q", got)
	}
}

// TestUndeliveredConsent: without a channel that accepts the question, and in a policy that
// only observes, consent is not requested and nothing is kept.
func TestUndeliveredConsent(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Observe, policy.Enforce} {
		w := newWorld()
		w.wants.Do, w.wants.Mode = policy.Do{Verb: policy.Stop}, mode
		local := machine("i-1")
		local.LocalGB = 250
		w.cloud.Put(local)
		if mode == policy.Enforce {
			w.people.Refuse("ana", true)
		}
		w.rounds(t, 5*time.Minute, time.Minute)
		want(t, w.round(t), "i-1", action.ResultRefused)
		if items := w.audit("i-1"); items != "" {
			t.Errorf("%s: kept %q", mode, items)
		}
		w.untouched(t)
	}
}

// ears keep what people are told.
type ears struct {
	action.Notifier
	heard []action.Message
}

func (e *ears) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	e.heard = append(e.heard, m)
	return e.Notifier.Notify(ctx, to, m)
}

func (e *ears) about(id string) []action.Message {
	return slices.DeleteFunc(slices.Clone(e.heard), func(m action.Message) bool { return m.Resource.ID != id })
}
