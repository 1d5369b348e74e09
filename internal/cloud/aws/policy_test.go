package aws

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// sources returns the text of the package's own files.
func sources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

func TestOperationsOnlyRead(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range operations {
		if seen[o.API()] {
			t.Errorf("%s is listed twice", o.API())
		}
		seen[o.API()] = true
		reads := o.API() == "sts:AssumeRole"
		for _, verb := range []string{"Describe", "Get", "List", "Head", "Lookup"} {
			reads = reads || strings.HasPrefix(o.Name, verb)
		}
		if !reads {
			t.Errorf("%s does not only read", o.API())
		}
		if o.Effect == "" || strings.ContainsAny(o.Effect, "\n") {
			t.Errorf("%s has no effect to tell", o.API())
		}
		if o.Scan && len(o.Actions) == 0 {
			t.Errorf("%s is called by an audit and needs no permission", o.API())
		}
		for _, a := range o.Actions {
			if strings.Contains(a, "*") {
				t.Errorf("%s asks for %s", o.API(), a)
			}
		}
	}
}

// TestCallsInSourceAreListed compares the calls in the source, and those whose failure it
// explains, with the table.
func TestCallsInSourceAreListed(t *testing.T) {
	services := map[string]string{
		"appscaling": "application-autoscaling", "autoscaling": "autoscaling",
		"classic": "elasticloadbalancing", "cloudwatch": "cloudwatch", "costs": "ce",
		"dynamodb": "dynamodb", "eks": "eks", "elasticache": "elasticache", "redshift": "redshift",
		"ec2": "ec2", "ecr": "ecr", "efs": "elasticfilesystem", "elb": "elasticloadbalancing",
		"fsx": "fsx", "logs": "logs",
		"opensearch": "es",
		"rds":        "rds", "s3": "s3", "sagemaker": "sagemaker", "savingsplans": "savingsplans",
		"secrets": "secretsmanager", "trail": "cloudtrail"}
	text := sources(t)
	called := map[string]bool{}
	call := regexp.MustCompile(`(\w+)Client\([ps]\.reading\)\.([A-Z]\w+)\(ctx,\s`)
	for _, m := range call.FindAllStringSubmatch(text, -1) {
		service, ok := services[m[1]]
		if !ok {
			t.Fatalf("%sClient(p.reading).%s: the test does not know that client", m[1], m[2])
		}
		called[service+":"+m[2]] = true
		if index[service+":"+m[2]] == nil {
			t.Errorf("%s:%s is called and not listed", service, m[2])
		}
	}
	for _, o := range operations {
		if o.Scan && o.Service != "sts" && !called[o.API()] {
			t.Errorf("%s is listed and not called", o.API())
		}
	}
	for _, m := range regexp.MustCompile(`(failed|failedIn|missed)\(ctx, "([^"]+)"|index\["([^"]+)"\]`).
		FindAllStringSubmatch(text, -1) {
		api := m[2] + m[3]
		switch op := index[api]; {
		case op == nil:
			t.Errorf("%s is explained and not listed", api)
		case m[1] == "missed" && op.Item == "":
			t.Errorf("%s fails for single resources and does not say what they are", api)
		}
	}
}

func TestPolicy(t *testing.T) {
	var policy struct {
		Version   string
		Statement []struct {
			Effect   string
			Action   []string
			Resource any
		}
	}
	if err := json.Unmarshal(PolicyJSON("aws"), &policy); err != nil {
		t.Fatal(err)
	}
	if policy.Version != "2012-10-17" || len(policy.Statement) != 2 || policy.Statement[0].Effect != "Allow" ||
		policy.Statement[0].Resource != "*" {
		t.Fatalf("the policy is %+v", policy)
	}
	actions := policy.Statement[0].Action
	if !slices.IsSorted(actions) || len(slices.Compact(slices.Clone(actions))) != len(actions) {
		t.Errorf("the actions are not sorted, or some are there twice: %v", actions)
	}
	for _, tc := range []struct {
		action string
		want   bool
	}{
		{"s3:ListAllMyBuckets", true}, {"s3:GetLifecycleConfiguration", true}, {"s3:ListBucketMultipartUploads", true},
		{"elasticfilesystem:DescribeFileSystems", true}, {"es:DescribeDomains", true}, {"ce:GetCostAndUsage", true},
		{"s3:GetObject", false}, {"secretsmanager:GetSecretValue", false}, {"sts:AssumeRole", false},
		{"pricing:GetProducts", false},
	} {
		if got := slices.Contains(actions, tc.action); got != tc.want {
			t.Errorf("the policy holds %s: %v, want %v", tc.action, got, tc.want)
		}
	}
	inventories := policy.Statement[1]
	if inventories.Effect != "Allow" || !slices.Equal(inventories.Action, []string{"s3:GetObject"}) {
		t.Fatalf("%+v", inventories)
	}
	for key, want := range map[string]bool{
		"source/weekly/2026-11-20T01-00Z/manifest.json":                                  true,
		"of/source/weekly/data/d794c570-95bb-4271-9128-26023c8b4900.parquet":             true,
		"of/source/weekly/data/d794c570-95bb-4271-9128-26023c8b4900.csv.gz":              true,
		"of/source/weekly/2026-11-20T01-00Z/symlink.txt":                                 false,
		"train/data/shard-0001.parquet":                                                  false,
		"manifest.json":                                                                  false,
		"of/source/weekly/data/d794c570-95bb-4271-9128-26023c8b4900.parquet/secrets.txt": false,
	} {
		got := slices.ContainsFunc(inventories.Resource.([]any), func(pattern any) bool {
			expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern.(string)))
			return regexp.MustCompile("^" + expression + "$").MatchString("arn:aws:s3:::lists/" + key)
		})
		if got != want {
			t.Errorf("%s may be read: %v, want %v", key, got, want)
		}
	}
}

func TestEveryKindHasACall(t *testing.T) {
	for _, k := range []inventory.Kind{
		inventory.KindAddress, inventory.KindAutoScalingGroup, inventory.KindBucket, inventory.KindCapacityReservation,
		inventory.KindCommitment,
		inventory.KindDatabase, inventory.KindEndpoint, inventory.KindFileSystem, inventory.KindImage,
		inventory.KindInstance, inventory.KindLoadBalancer,
		inventory.KindLogGroup, inventory.KindNATGateway, inventory.KindNotebook, inventory.KindRepository,
		inventory.KindSecret,
		inventory.KindSnapshot, inventory.KindTrainingJob, inventory.KindVolume,
	} {
		if !slices.ContainsFunc(operations, func(o Operation) bool { return slices.Contains(o.Kinds, k) }) {
			t.Errorf("no call lists %s", k)
		}
	}
}
