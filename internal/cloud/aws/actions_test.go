package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

func TestMutationsListChangingCalls(t *testing.T) {
	takes := regexp.MustCompile(
		`^(Terminate|Release|Delete(Volume|Notebook|Endpoint)|Put(Retention|Lifecycle|BucketLifecycle))`)
	seen := map[string]bool{}
	for _, m := range mutations {
		if seen[m.API()] {
			t.Errorf("%s is listed twice", m.API())
		}
		seen[m.API()] = true
		for _, verb := range []string{"Describe", "Get", "List", "Head"} {
			if strings.HasPrefix(m.Name, verb) {
				t.Errorf("%s only reads", m.API())
			}
		}
		if index[m.API()] != nil {
			t.Errorf("%s is among the calls that read as well", m.API())
		}
		if len(m.Actions) == 0 || m.Harm == 0 {
			t.Errorf("%s: actions %q, harm %d", m.API(), m.Actions, m.Harm)
		}
		if takes.MatchString(m.Name) != (m.Harm == Destroys) && m.Name != "StopTrainingJob" {
			t.Errorf("%s: harm %d", m.API(), m.Harm)
		}
	}
}

// TestMutationsInSourceAreListed compares the mutating calls in the source with the table.
func TestMutationsInSourceAreListed(t *testing.T) {
	services := map[string]string{
		"autoscaling": "autoscaling", "classic": "elasticloadbalancing", "ec2": "ec2", "ecr": "ecr",
		"efs": "elasticfilesystem",
		"elb": "elasticloadbalancing", "fsx": "fsx", "logs": "logs", "opensearch": "es", "rds": "rds", "s3": "s3",
		"sagemaker": "sagemaker", "secrets": "secretsmanager"}
	called := map[string]bool{}
	call := regexp.MustCompile(`(\w+)Client\(s\.acting\)\.([A-Z]\w+)\(ctx,\s`)
	for _, m := range call.FindAllStringSubmatch(sources(t), -1) {
		api := services[m[1]] + ":" + m[2]
		called[api] = true
		if !mutable()[api] {
			t.Errorf("%s is called and not listed", api)
		}
	}
	for _, m := range mutations {
		if !called[m.API()] {
			t.Errorf("%s is listed and not called", m.API())
		}
	}
}

// TestActingClientsRefuseOtherCalls tries to read, and to make a change that is not in the table,
// with an acting client.
func TestActingClientsRefuseOtherCalls(t *testing.T) {
	sent := false
	endpoint(t, func(http.ResponseWriter, *http.Request) { sent = true })
	c, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := c.scan(round.Query{}, newLimits(10)).place(&account{id: "1", cfg: c.config}, "us-east-1").acting()
	for name, call := range map[string]func() error{
		"ec2:RunInstances": func() error {
			_, err := ec2Client(h).RunInstances(t.Context(), &ec2.RunInstancesInput{
				MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
			})
			return err
		},
		"ec2:DeleteSnapshot": func() error {
			_, err := ec2Client(h).DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{
				SnapshotId: awssdk.String("snap-1"),
			})
			return err
		},
		"ec2:DescribeInstances": func() error {
			_, err := ec2Client(h).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
			return err
		},
	} {
		var refused *RefusedError
		if err := call(); !errors.As(err, &refused) || refused.API != name || !refused.Acting || sent {
			t.Errorf("%s: got %v, sent %v; want a refusal and nothing sent", name, err, sent)
		}
	}
}

func TestActionPolicy(t *testing.T) {
	type document struct {
		Statement []struct {
			Sid, Effect string
			Resource    any
			Action      []string
			Condition   map[string]map[string]any
		}
	}
	for _, governed := range [][]map[string]string{nil, {{"team": "vision", "project": "*"}}} {
		var doc document
		if err := json.Unmarshal(ActionPolicyJSON(Grants{
			Partition: "aws", Governed: governed, Buckets: []string{"models"},
		}),
			&doc); err != nil {
			t.Fatal(err)
		}
		allowed, denied := map[string]string{}, map[string]string{}
		for _, s := range doc.Statement {
			for _, a := range s.Action {
				if strings.Contains(a, "*") && s.Effect == "Allow" {
					t.Errorf("%s asks for %s", s.Sid, a)
				}
				if s.Effect == "Allow" {
					allowed[a] += fmt.Sprint(s.Condition)
				} else {
					denied[a] += fmt.Sprint(s.Condition)
				}
			}
		}
		for _, m := range mutations {
			for _, a := range m.Actions {
				name := m.Service + ":" + a
				if _, ok := allowed[name]; !ok {
					t.Errorf("%s needs %s, which is not allowed", m.API(), name)
				}
				if m.Harm < Restores || !m.Tagged || name == "ec2:StartInstances" {
					continue
				}
				if ends := m.Harm >= Halts; strings.Contains(denied[name],
					"aws:ResourceTag/curfew:lifetime:persistent") != ends {
					t.Errorf("%s, denied on persistent resources: %v, want %v", name, !ends, ends)
				}
				want := "map[StringEqualsIgnoreCase:map[aws:ResourceTag/curfew:managed:true]]"
				if governed != nil {
					want += "map[Null:map[aws:ResourceTag/project:false] " +
						"StringEqualsIgnoreCase:map[aws:ResourceTag/team:vision]]"
				}
				if slices.Contains(resizes, name) {
					want += "map[StringEqualsIgnoreCase:map[aws:ResourceTag/curfew:scale:true]]"
				}
				if allowed[name] != want {
					t.Errorf("governed by %v, and %s is allowed where %s, want %s", governed,
						name, allowed[name], want)
				}
			}
		}
		for _, o := range operations {
			for _, a := range o.IAM() {
				if _, ok := allowed[a]; ok != (o.Act || o.Scan || a == "s3:GetObject") {
					t.Errorf("%s is allowed: %v, acting %v, scanning %v", a, ok, o.Act, o.Scan)
				}
			}
		}
	}
}

// machineXML returns a DescribeInstances response with one machine.
func machineXML(state, launched, more string) string {
	return fmt.Sprintf(
		`<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId><instanceState><name>%s</name></instanceState>
<launchTime>%s</launchTime><instanceType>t3.medium</instanceType><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/xvda</rootDeviceName>%s</item></instancesSet></item></reservationSet></DescribeInstancesResponse>`, state, launched, more)
}

const launched = "2026-11-20T08:00:00.000Z"

// one returns a task on the machine of machineXML.
func one(verb policy.Verb, step string) action.Task {
	return action.Task{
		Ref: inventory.Ref{
			Cloud: "aws", Account: "111122223333", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1",
		},
		Identity: "2026-11-20T08:00:00Z", Do: policy.Do{Verb: verb, ScratchDisks: true},
		Step: action.Step{Name: step, Key: "k", Params: "{}"}}
}

// answering serves EC2 with one response per action, and returns the actions and the forms of
// mutating calls.
func answering(t *testing.T, answers map[string]string) (a *Actions, changes *[]url.Values) {
	t.Helper()
	changes = &[]url.Values{}
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		name := form.Get("Action")
		if name == "GetCallerIdentity" {
			fmt.Fprint(w, identityXML)
			return
		}
		if key := name + " " + form.Get("Attribute"); answers[key] != "" {
			name = key
		}
		if mutable()["ec2:"+name] {
			*changes = append(*changes, form)
		}
		switch text := answers[name]; {
		case strings.HasPrefix(text, "<"):
			fmt.Fprint(w, text)
		case text == "":
			fmt.Fprintf(w, "<%sResponse></%sResponse>", name, name)
		default:
			refuse(w, r, http.StatusBadRequest, text, "no")
		}
	})
	c, err := New(t.Context(), Options{RequestsPerSecond: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return c.Actions(), changes
}

func TestReadsMachineProgress(t *testing.T) {
	for _, tc := range []struct {
		name, answer     string
		stop, terminated action.Progress
		identity         bool
	}{
		{"pending", machineXML("pending", launched, ""), action.NotDone, action.NotDone, false},
		{"running", machineXML("running", launched, ""), action.NotDone, action.NotDone, false},
		{"stopping", machineXML("stopping", launched, ""), action.InProgress, action.NotDone, false},
		{"stopped", machineXML("stopped", launched, ""), action.Complete, action.NotDone, false},
		{"shutting down", machineXML("shutting-down", launched, ""), action.Impossible, action.InProgress, false},
		{"terminated", machineXML("terminated", launched, ""), action.Impossible, action.Complete, false},
		{"forgotten", "InvalidInstanceID.NotFound", action.Impossible, action.Complete, false},
		{"another one", machineXML("stopped", "2026-11-20T08:00:01.000Z", ""), action.NotDone, action.NotDone, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, _ := answering(t, map[string]string{"DescribeInstances": tc.answer})
			for step, want := range map[string]action.Progress{
				stepStop: tc.stop, stepHibernate: tc.stop, stepTerminate: tc.terminated,
			} {
				got, _, err := a.Look(t.Context(), one(policy.Stop, step))
				var refused *action.Refusal
				if got != want || (err != nil) != tc.identity || tc.identity &&
					(!errors.As(err, &refused) || refused.Rule != "identity") {
					t.Errorf("%s: %s, %v; want %s", step, got, err, want)
				}
			}
		})
	}
}

// TestFailedReadLeavesProgressUnknown checks that a failed query leaves the progress of a call unknown.
func TestFailedReadLeavesProgressUnknown(t *testing.T) {
	a, _ := answering(t, map[string]string{"DescribeInstances": "UnauthorizedOperation"})
	got, _, err := a.Look(t.Context(), one(policy.Terminate, stepTerminate))
	if got != action.NotDone || !errors.Is(err, inventory.ErrDenied) {
		t.Errorf("got %s, %v; want it denied", got, err)
	}
}

func TestTerminationChecksTags(t *testing.T) {
	tagged := func(key string) string {
		return "<tagSet><item><key>" + key + "</key><value>x</value></item></tagSet>"
	}
	off := `<DescribeInstanceAttributeResponse><disableApiStop><value>false</value></disableApiStop><disableApiTermination><value>false</value></disableApiTermination></DescribeInstanceAttributeResponse>`
	on := strings.ReplaceAll(off, "false", "true")
	for _, tc := range []struct {
		name, machine string
		verb          policy.Verb
		answers       map[string]string
		rule          string // empty if allowed
	}{
		{"plain", machineXML("running", launched, ""), policy.Stop, nil, ""},
		{"plain, to be terminated", machineXML("stopped", launched, ""), policy.Terminate, nil, ""},
		{"stopped, to be stopped", machineXML("stopped", launched, ""), policy.Stop, nil, "state"},
		{"terminated", machineXML("terminated", launched, ""), policy.Terminate, nil, "gone"},
		{"launched again", machineXML("running", "2026-11-20T09:00:00.000Z", ""), policy.Stop, nil, "identity"},
		{
			"in an Auto Scaling group",
			machineXML("running", launched, tagged("aws:autoscaling:groupName")), policy.Stop,
			nil, "group-member",
		},
		{
			"in a fleet", machineXML("running", launched, tagged("aws:ec2:fleet-id")), policy.Terminate, nil,
			"group-member",
		},
		{
			"in a spot fleet",
			machineXML("running", launched, tagged("aws:ec2spot:fleet-request-id")), policy.Terminate, nil,
			"group-member",
		},
		{
			"of an EKS cluster", machineXML("running", launched, tagged("eks:nodegroup-name")), policy.Stop, nil,
			"group-member",
		},
		{
			"of a Kubernetes cluster",
			machineXML("running", launched, tagged("kubernetes.io/cluster/prod")), policy.Stop,
			nil, "group-member",
		},
		{
			"of an ECS cluster", machineXML("running", launched, tagged("AmazonECSManaged")), policy.Stop, nil,
			"group-member",
		},
		{
			"with a tag that only looks so",
			machineXML("running", launched, tagged("AmazonECSManagedNot")), policy.Stop, nil,
			"",
		},
		{
			"managed by a service",
			machineXML("running", launched,
				"<operator><managed>true</managed><principal>eks.amazonaws.com</principal></operator>"),
			policy.Stop, nil, "group-member",
		},
		{
			"protected against stopping", machineXML("running", launched, ""), policy.Stop,
			map[string]string{"DescribeInstanceAttribute disableApiStop": on}, "protected",
		},
		{
			"protected against stopping, to be terminated", machineXML("running", launched, ""), policy.Terminate,
			map[string]string{"DescribeInstanceAttribute disableApiStop": on}, "protected",
		},
		{
			"protected against terminating", machineXML("running", launched, ""), policy.Terminate,
			map[string]string{"DescribeInstanceAttribute disableApiTermination": on}, "protected",
		},
		{
			"protected against terminating, to be stopped", machineXML("running", launched, ""), policy.Stop,
			map[string]string{"DescribeInstanceAttribute disableApiTermination": on}, "",
		},
		{
			"protection cannot be read", machineXML("running", launched, ""), policy.Stop,
			map[string]string{"DescribeInstanceAttribute": "UnauthorizedOperation"}, "unknown",
		},
		{
			"protection is not said", machineXML("running", launched, ""), policy.Stop,
			map[string]string{"DescribeInstanceAttribute": "<DescribeInstanceAttributeResponse/>"}, "unknown",
		},
		{
			"its root is instance-store",
			strings.Replace(machineXML("running", launched, ""), "<rootDeviceType>ebs",
				"<rootDeviceType>instance-store", 1),
			policy.Stop, nil, "unsaved-disk",
		},
		{
			"its root is not said",
			strings.Replace(machineXML("running", launched, ""), "<rootDeviceType>ebs</rootDeviceType>", "", 1),
			policy.Stop,
			nil, "unsaved-disk",
		},
		{
			"hibernation is enabled",
			machineXML("running", launched, "<hibernationOptions><configured>true</configured></hibernationOptions>"),
			policy.Hibernate, nil, "",
		},
		{
			"hibernation is not enabled",
			machineXML("running", launched, "<hibernationOptions><configured>false</configured></hibernationOptions>"),
			policy.Hibernate, nil, "not-enabled",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answers := map[string]string{"DescribeInstances": tc.machine, "DescribeInstanceAttribute": off}
			for k, v := range tc.answers {
				answers[k] = v
			}
			a, changes := answering(t, answers)
			task := one(tc.verb, string(tc.verb))
			made := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
			_, planned := a.Plan(t.Context(), &inventory.Resource{
				Cloud: "aws", Account: task.Ref.Account, Region: task.Ref.Region, Kind: task.Ref.Kind, ID: "i-1",
				CreatedAt: made,
			}, task.Do)
			_, done := a.Do(t.Context(), task)
			var refused *action.Refusal
			if tc.rule == "" {
				if planned != nil || done != nil || len(*changes) != 1 {
					t.Fatalf("planned: %v, done: %v, %d calls; want it done", planned, done, len(*changes))
				}
				hibernates := (*changes)[0].Get("Hibernate") == "true"
				if hibernates != (tc.verb == policy.Hibernate) {
					t.Errorf("it hibernates: %v", hibernates)
				}
				return
			}
			if !errors.As(planned, &refused) || refused.Rule != tc.rule {
				t.Errorf("planned: %v, want a refusal by %q", planned, tc.rule)
			}
			if len(*changes) > 0 {
				t.Errorf("it was done all the same: %v", *changes)
			}
		})
	}
}

// TestLocalDisks checks the detection of instance-store disks for each kind of response.
func TestLocalDisks(t *testing.T) {
	typeXML := func(more string) string {
		return "<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>t3.medium</instanceType>" + more +
			"</item></instanceTypeSet></DescribeInstanceTypesResponse>"
	}
	for _, tc := range []struct{ name, answer, rule string }{
		{"none", typeXML("<instanceStorageSupported>false</instanceStorageSupported>"), ""},
		{"some", typeXML("<instanceStorageSupported>true</instanceStorageSupported>"), "unsaved-disk"},
		{"not said", typeXML(""), "unknown"},
		{"no such type", "InvalidInstanceType", "unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, _ := answering(t, map[string]string{
				"DescribeInstances": machineXML("running", launched, ""), "DescribeInstanceTypes": tc.answer,
				"DescribeInstanceAttribute": `<DescribeInstanceAttributeResponse><disableApiStop><value>false</value></disableApiStop></DescribeInstanceAttributeResponse>`})
			task := one(policy.Stop, stepStop)
			task.Do.ScratchDisks = false
			_, err := a.Do(t.Context(), task)
			var refused *action.Refusal
			if tc.rule == "" && err != nil || tc.rule != "" && (!errors.As(err, &refused) || refused.Rule != tc.rule) {
				t.Errorf("got %v, want a refusal by %q", err, tc.rule)
			}
		})
	}
}

// TestSnapshotsOnlyDeletedDisks checks the requests to EC2.
func TestSnapshotsOnlyDeletedDisks(t *testing.T) {
	disk := func(device, volume string, ends bool) string {
		return fmt.Sprintf(
			"<item><deviceName>%s</deviceName><ebs><volumeId>%s</volumeId><deleteOnTermination>%v</deleteOnTermination></ebs></item>", device, volume, ends)
	}
	for _, tc := range []struct {
		name, disks string
		volumes     []string
		boot        string
		data        []string
	}{
		{
			"all", disk("/dev/xvda", "vol-1", true) + disk("/dev/sdb", "vol-2", true), []string{"vol-1", "vol-2"}, "",
			nil,
		},
		{
			"not the data", disk("/dev/xvda", "vol-1", true) + disk("/dev/sdb", "vol-2", false), []string{"vol-1"}, "",
			[]string{"vol-2"},
		},
		{
			"not the root", disk("/dev/xvda", "vol-1", false) + disk("/dev/sdb", "vol-2", true),
			[]string{"vol-2"}, "true",
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, changes := answering(t, map[string]string{
				"DescribeInstances": machineXML("running", launched,
					"<blockDeviceMapping>"+tc.disks+"</blockDeviceMapping>"),
			})
			task := one(policy.Terminate, stepSnapshot)
			task.Step.Params = encoded(snapshotParams{tc.volumes})
			if _, err := a.Do(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			form := (*changes)[0]
			var data []string
			for i := 1; form.Has(fmt.Sprintf("InstanceSpecification.ExcludeDataVolumeId.%d", i)); i++ {
				data = append(data, form.Get(fmt.Sprintf("InstanceSpecification.ExcludeDataVolumeId.%d", i)))
			}
			if form.Get("InstanceSpecification.ExcludeBootVolume") != tc.boot || !slices.Equal(data, tc.data) {
				t.Errorf("left out: root %q, data %v; want %q, %v: %v",
					form.Get("InstanceSpecification.ExcludeBootVolume"), data,
					tc.boot, tc.data, form)
			}
			task.Step.Params = encoded(snapshotParams{[]string{"vol-9"}})
			var refused *action.Refusal
			if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) ||
				refused.Rule != "changed" || len(*changes) != 1 {
				t.Errorf("other disks than were planned: %v, want a refusal", err)
			}
		})
	}
}

// TestSnapshotsInError checks that failed snapshots never complete.
func TestSnapshotsInError(t *testing.T) {
	for _, tc := range []struct {
		states []string
		want   action.Progress
	}{
		{nil, action.NotDone}, {[]string{"pending", "completed"}, action.InProgress},
		{[]string{"completed"}, action.InProgress},
		{[]string{"completed", "completed"}, action.Complete}, {[]string{"completed", "error"}, action.Impossible},
		{[]string{"recoverable", "completed"}, action.InProgress},
	} {
		var items strings.Builder
		for i, s := range tc.states {
			fmt.Fprintf(&items,
				"<item><snapshotId>snap-%d</snapshotId><volumeId>vol-%d</volumeId><status>%s</status></item>",
				i, i, s)
		}
		a, _ := answering(t, map[string]string{
			"DescribeSnapshots": "<DescribeSnapshotsResponse><snapshotSet>" + items.String() +
				"</snapshotSet></DescribeSnapshotsResponse>",
		})
		task := one(policy.Terminate, stepSnapshot)
		task.Step.Params = encoded(snapshotParams{[]string{"vol-0", "vol-1"}})
		if got, _, err := a.Look(t.Context(), task); err != nil || got != tc.want {
			t.Errorf("snapshots %v of two volumes: %s, %v; want %s", tc.states, got, err, tc.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	for _, tc := range []struct {
		name, machine, answer string
		want                  error
		rule                  string
		calls                 int
	}{
		{"stopped", machineXML("stopped", launched, ""), "", nil, "", 1},
		{"it runs", machineXML("running", "2026-11-20T10:00:00.000Z", ""), "", nil, "", 0},
		{"still stopping", machineXML("stopping", launched, ""), "", nil, "state", 0},
		{
			"no capacity", machineXML("stopped", launched, ""), "InsufficientInstanceCapacity",
			inventory.ErrNoCapacity,
			"", 1,
		},
		{"another one", machineXML("stopped", "2026-11-20T10:00:00.000Z", ""), "", nil, "identity", 0},
		{"gone", "InvalidInstanceID.NotFound", "", nil, "gone", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, changes := answering(t, map[string]string{"DescribeInstances": tc.machine, "StartInstances": tc.answer})
			err := a.Undo(t.Context(), one(policy.Stop, stepStop))
			var refused *action.Refusal
			switch {
			case tc.rule != "" && (!errors.As(err, &refused) || refused.Rule != tc.rule), tc.rule == "" &&
				!errors.Is(err, tc.want):
				t.Errorf("got %v, want %v%s", err, tc.want, tc.rule)
			case len(*changes) != tc.calls:
				t.Errorf("%d calls, want %d", len(*changes), tc.calls)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	for _, tc := range []struct {
		code string
		rule string
		want error
	}{
		{"OperationNotPermitted", "protected", nil}, {"VolumeInUse", "in-use", nil},
		{"IncorrectInstanceState", "state", nil},
		{"InvalidVolume.NotFound", "", inventory.ErrNotFound}, {"UnauthorizedOperation", "", inventory.ErrDenied},
		{"InternalError", "", inventory.ErrUnavailable},
	} {
		a, _ := answering(t, map[string]string{"DescribeInstances": tc.code})
		i, err := one(policy.Stop, stepStop), error(nil)
		s, err2 := a.site(t.Context(), i.Ref)
		if err2 != nil {
			t.Fatal(err2)
		}
		_, err = s.machine(t.Context(), "i-1")
		var refused *action.Refusal
		if tc.rule != "" && (!errors.As(err, &refused) || refused.Rule != tc.rule) || tc.want != nil &&
			!errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v%s", tc.code, err, tc.want, tc.rule)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s takes several lines: %q", tc.code, err)
		}
	}
}

func TestActionsOutOfReach(t *testing.T) {
	a, _ := answering(t, nil)
	for name, change := range map[string]func(*inventory.Ref){
		"another account": func(r *inventory.Ref) { r.Account = "999999999999" },
		"another cloud":   func(r *inventory.Ref) { r.Cloud = "gcp" },
	} {
		task := one(policy.Stop, stepStop)
		change(&task.Ref)
		if _, err := a.Do(t.Context(), task); err == nil {
			t.Errorf("%s was acted on", name)
		}
		if p, _, err := a.Look(t.Context(), task); err == nil || p != action.NotDone {
			t.Errorf("%s was looked at: %s", name, p)
		}
	}
	task := one(policy.Stop, "explode")
	if _, err := a.Do(t.Context(), task); err == nil {
		t.Error("a step that there is not was made")
	}
}

// TestKnowCoversEveryVerb checks that each action states its degree of undo and a note.
func TestKnowCoversEveryVerb(t *testing.T) {
	for k := range planners {
		undo, know := Know(&inventory.Resource{Kind: k.kind}, policy.Verb(k.name))
		if !slices.Contains([]string{"full", "partial", "none"}, undo) || know == "" {
			t.Errorf("%s %s: %q, %q", k.name, k.kind, undo, know)
		}
		for _, d := range handlers {
			if d.undo == nil && d.lost == "" {
				t.Errorf("a step cannot be undone and does not say why")
			}
		}
	}
	for gpus, want := range map[inventory.Fact[int]]string{
		inventory.Known(8): "partial", {}: "partial", inventory.Known(0): "full",
	} {
		r := &inventory.Resource{Kind: inventory.KindInstance, Size: inventory.Size{GPUs: gpus}}
		if undo, know := Know(r, policy.Stop); undo != want ||
			strings.Contains(know, "lack of capacity") != (want == "partial") {
			t.Errorf("stopping a machine with %v: %q, %q", gpus, undo, know)
		}
	}
	if undo, know := Know(&inventory.Resource{Kind: inventory.KindInstance}, policy.Suspend); undo != "none" ||
		know != "" {
		t.Errorf("what is not done here: %q, %q", undo, know)
	}
}

func TestCadence(t *testing.T) {
	at := func(minutes ...int) []moment {
		var out []moment
		for _, m := range minutes {
			out = append(out, moment{at: now.Add(time.Duration(m) * time.Minute)})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		asked time.Duration
		at    []moment
		want  time.Duration
	}{
		{"each minute", time.Minute, at(0, 1, 2, 3), time.Minute},
		{"each five minutes", time.Minute, at(0, 5, 10, 15), 5 * time.Minute},
		{"five minutes with holes", time.Minute, at(0, 5, 15, 20), 5 * time.Minute},
		{"a minute with holes", time.Minute, at(0, 4, 5, 9), time.Minute},
		{"two points say nothing", time.Minute, at(0, 5), time.Minute},
		{"nothing", time.Minute, nil, time.Minute},
		{"each quarter of an hour is a minute with gaps", time.Minute, at(0, 15, 30, 45), time.Minute},
		{"asked by five", 5 * time.Minute, at(0, 5, 10), 5 * time.Minute},
		{"asked by the hour", time.Hour, at(0, 60, 120), time.Hour},
	} {
		if got := cadence(tc.asked, tc.at); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	for window, want := range map[time.Duration]time.Duration{
		time.Hour: time.Minute, 3 * time.Hour: time.Minute, 6 * time.Hour: time.Minute,
		24 * time.Hour: 5 * time.Minute,
		48 * time.Hour: 5 * time.Minute, 14 * 24 * time.Hour: time.Hour} {
		if got := stepOf(window); got != want {
			t.Errorf("a window of %s is read by %s, want %s", window, got, want)
		}
	}
}

func TestManagedTags(t *testing.T) {
	for _, m := range managers {
		tag := m.tag
		if strings.ContainsAny(tag[len(tag)-1:], ":/-") {
			tag += "x"
		}
		if err := unmanaged("machine", "i-1", nil, []types.Tag{{Key: &tag}}); err == nil {
			t.Errorf("%s marks no manager", tag)
		}
	}
}
