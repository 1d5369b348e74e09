package terraform

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// slow skips tests that need Terraform, which is built if necessary, and the stand-in.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make terraform runs it")
	}
}

// whole is the configuration of a backbone with every option.
var whole = map[string]any{
	"region": "us-east-1", "curfew_principals": []string{
		"arn:aws:iam::111122223333:role/platform",
	}, "external_id": "x1",
	"act":              true,
	"governed_buckets": []string{"models"},
	"governed_tags":    []map[string]string{{"curfew:lifetime": "ephemeral"}},
	"dataset_buckets":  []string{"imagenet-mirror"},
	"state": map[string]string{
		"bucket": "states", "key": "curfew/backbone.tfstate", "session_prefix": "curfew/sessions/",
	},
	"runners": map[string]any{
		"provider": "arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com",
		"subjects": []string{"repo:acme/vision:ref:refs/heads/main"},
	},
}

// plain is the minimum configuration of a backbone.
var plain = map[string]any{
	"region": "us-east-1", "curfew_principals": []string{"arn:aws:iam::111122223333:role/platform"},
}

func with(base map[string]any, more map[string]any) map[string]any {
	out := maps.Clone(base)
	maps.Copy(out, more)
	return out
}

// session returns the configuration of a session on a backbone whose state is in a neighboring
// file.
func session(more map[string]any) map[string]any {
	return with(map[string]any{
		"backbone": map[string]any{
			"backend": "local", "config": map[string]string{"path": "../backbone/terraform.tfstate"},
		},
		"session": "demo", "owner": "AIDAANA", "instance_type": "g6.2xlarge",
		"lease_until": "2999-01-01T18:30:00Z"}, more)
}

// TestModules formats, initializes, validates and tests each module as its README does.
func TestModules(t *testing.T) {
	slow(t)
	w := New(t)
	for _, module := range []string{"backbone", "session"} {
		t.Run(module, func(t *testing.T) {
			w.t = t
			w.Run(module, "fmt", "-check", "-diff", "-recursive")
			w.Run(module, "init", "-no-color", "-input=false", "-backend=false")
			w.Run(module, "validate", "-no-color")
			out := w.Run(module, "test", "-no-color")
			passed := regexp.MustCompile(`Success! (\d+) passed, 0 failed`).FindStringSubmatch(out)
			runs := 0
			files, err := filepath.Glob(filepath.Join(w.Dir, "terraform", module, "tests", "*.tftest.hcl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				raw, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				runs += len(regexp.MustCompile(`(?m)^run "`).FindAll(raw, -1))
			}
			if runs < 4 || passed == nil || passed[1] != strconv.Itoa(runs) {
				t.Errorf("%d runs:\n%s", runs, out)
			}
		})
	}
}

// TestMistakesAreFound checks that the stand-in refuses what AWS's provider would: an unknown name,
// a wrong type or a missing argument.
func TestMistakesAreFound(t *testing.T) {
	slow(t)
	w := New(t)
	w.Run("session", "init", "-no-color", "-input=false", "-backend=false")
	for name, tc := range map[string]struct{ resource, want string }{
		"unknown argument": {`resource "aws_s3_bucket" "x" { bucket_name = "b" }`, "Unsupported argument"},
		"unknown block":    {"resource \"aws_instance\" \"x\" {\n  root_disk {}\n}", "Unsupported block type"},
		"unknown resource": {`resource "aws_s3_buckets" "x" {}`, "Invalid resource type"},
		"missing argument": {`resource "aws_ssm_document" "x" { name = "n" }`, "Missing required argument"},
		"wrong type": {
			`resource "aws_cloudwatch_log_group" "x" { retention_in_days = "soon" }`, "Incorrect attribute value type",
		},
		"set by AWS alone": {`resource "aws_vpc" "x" { arn = "a" }`, "Value for unconfigurable attribute"},
		"two of one block": {
			"resource \"aws_instance\" \"x\" {\n  root_block_device {}\n  root_block_device {}\n}",
			"Too many root_block_device blocks",
		},
		"nothing there": {"output \"x\" { value = aws_instance.node[0].volume }", "Unsupported attribute"},
	} {
		w.write("terraform/session/mistake.tf", tc.resource+"\n")
		if out, err := w.Try("session", "validate", "-no-color"); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s was not refused by %q (%v):\n%s", name, tc.want, err, out)
		}
	}
}

// TestExamples plans the modules in examples/terraform, each with the state of the other.
func TestExamples(t *testing.T) {
	slow(t)
	w := New(t)
	for _, module := range []string{"backbone", "session"} {
		var backend map[string]bool
		raw, err := os.ReadFile(filepath.Join(w.Dir, "examples/terraform", module+".s3.tfbackend"))
		if err != nil {
			t.Fatal(err)
		}
		backend = map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^(\w+) += `).FindAllStringSubmatch(string(raw), -1) {
			backend[m[1]] = true
		}
		if want := map[string]bool{
			"bucket": true, "key": true, "region": true, "encrypt": true, "use_lockfile": true,
		}; !maps.Equal(backend, want) {
			t.Errorf("%s has the backend's %v, want %v", module, backend, want)
		}
	}
	w.Local("backbone")
	w.Run("backbone", "apply", "-no-color", "-input=false", "-auto-approve",
		"-var-file=../../examples/terraform/backbone.tfvars")
	w.Local("session")
	out := w.Run("session", "plan", "-no-color", "-input=false", "-var-file=../../examples/terraform/session.tfvars",
		`-var=backbone={backend="local",config={path="../backbone/terraform.tfstate"}}`)
	// A machine, and its role with its policy and its profile.
	if !strings.Contains(out, "Plan: 4 to add, 0 to change, 0 to destroy") {
		t.Error(out)
	}
}

// TestBackboneIsRead applies the backbone and reads its parameters as a launch does.
func TestBackboneIsRead(t *testing.T) {
	slow(t)
	for name, vars := range map[string]map[string]any{
		"public": plain, "private": with(plain, map[string]any{"nat_gateway": true}),
		"zones": with(plain, map[string]any{"zones": []string{"us-east-1f"}}),
	} {
		t.Run(name, func(t *testing.T) {
			w := New(t)
			w.Local("backbone")
			s := w.Apply("backbone", vars)
			values := map[string]string{}
			for _, r := range s.Of("aws_ssm_parameter") {
				values[r.Values["name"].(string)] = r.Values["value"].(string)
			}
			b, err := aws.ReadBackbone(values)
			if err != nil {
				t.Fatal(err)
			}
			if len(values) != len(aws.BackboneParameters) {
				t.Errorf("parameters %v", slices.Sorted(maps.Keys(values)))
			}
			zones := map[string]string{} // subnets for machines, by whether they assign public addresses
			for _, r := range s.Of("aws_subnet") {
				if r.Values["map_public_ip_on_launch"].(bool) == (name != "private") {
					zones[r.Values["id"].(string)] = r.Values["availability_zone"].(string)
				}
			}
			got := map[string]string{}
			for _, subnet := range b.Subnets {
				got[subnet.ID] = subnet.Zone
			}
			if name == "private" {
				for _, r := range s.Of("aws_subnet") {
					if r.Name == "public" {
						delete(zones, r.Values["id"].(string))
					}
				}
			}
			if want := map[string]int{"public": 3, "private": 3, "zones": 1}[name]; len(got) != want ||
				!maps.Equal(got, zones) {
				t.Errorf("subnets %v, want %d: %v", got, want, zones)
			}
			for got, want := range map[string]string{
				b.Bucket:          s.Text(`aws_s3_bucket.this["sessions"]`, "bucket"),
				b.SecurityGroup:   s.Text("aws_security_group.sessions", "id"),
				b.MachinePolicy:   s.Text("aws_iam_policy.machine", "arn"),
				b.LogGroup:        s.Text(`aws_cloudwatch_log_group.this["sessions"]`, "name"),
				b.Key:             s.Text("aws_kms_key.logs", "arn"),
				b.SessionDocument: s.Text("aws_ssm_document.session", "name"),
			} {
				if got == "" || got != want {
					t.Errorf("parameter %q, want %q", got, want)
				}
			}
		})
	}
}

// TestNothingComesIn checks every rule that admits traffic against the only one that may.
func TestNothingComesIn(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	s := w.Apply("backbone", with(plain, map[string]any{"nat_gateway": true}))
	rules := s.Of("aws_vpc_security_group_ingress_rule")
	if len(rules) != 1 || len(s.Of("aws_security_group")) != 1 {
		t.Fatalf("%d rules let something in, %d groups", len(rules), len(s.Of("aws_security_group")))
	}
	group := s.Text("aws_security_group.sessions", "id")
	for _, key := range []string{"security_group_id", "referenced_security_group_id"} {
		if rules[0].Values[key] != group {
			t.Errorf("%s is %v, want %s", key, rules[0].Values[key], group)
		}
	}
	for _, key := range []string{"cidr_ipv4", "cidr_ipv6", "prefix_list_id"} {
		if rules[0].Values[key] != nil {
			t.Errorf("%s is %v", key, rules[0].Values[key])
		}
	}
	for _, r := range append(s.Of("aws_security_group"), s.Of("aws_default_security_group")...) {
		if in, _ := r.Values["ingress"].([]any); len(in) > 0 {
			t.Errorf("%s lets in %v", r.Address, in)
		}
	}
	if len(s.Of("aws_default_security_group")) != 1 {
		t.Error("the default group is not emptied")
	}
}

// rules returns the lifecycle rules of a bucket by name, as compact JSON.
func rules(t *testing.T, s *State, address string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, r := range s.Of("aws_s3_bucket_lifecycle_configuration") {
		if r.Address != address {
			continue
		}
		for _, rule := range r.Values["rule"].([]any) {
			rule := rule.(map[string]any)
			if rule["status"] != "Enabled" {
				t.Errorf("%s: rule %v is %v", address, rule["id"], rule["status"])
			}
			out[rule["id"].(string)] = rule
		}
	}
	return out
}

// block returns an argument of the only block of a kind in a rule.
func block(rule map[string]any, kind, argument string) any {
	blocks, _ := rule[kind].([]any)
	if len(blocks) != 1 {
		return nil
	}
	return blocks[0].(map[string]any)[argument]
}

// TestWhatStaysAndWhatExpires checks lifecycle rules and retention.
func TestWhatStaysAndWhatExpires(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	s := w.Apply("backbone",
		with(plain, map[string]any{
			"control_expire_days": 21, "noncurrent_days": 9, "log_retention_days": 14, "keep_images": 3,
		}))
	sessions, data := rules(t, s, "aws_s3_bucket_lifecycle_configuration.sessions"), rules(t, s,
		"aws_s3_bucket_lifecycle_configuration.data")
	for name, all := range map[string]map[string]map[string]any{"sessions": sessions, "data": data} {
		if r := all["abandoned-uploads"]; block(r, "abort_incomplete_multipart_upload",
			"days_after_initiation") != 7.0 ||
			block(r, "filter", "prefix") != "" {
			t.Errorf("%s: abandoned uploads: %v", name, r)
		}
		if r := all["replaced-versions"]; block(r, "noncurrent_version_expiration", "noncurrent_days") != 9.0 {
			t.Errorf("%s: replaced versions: %v", name, r)
		}
		for id, r := range all {
			if expires, _ := r["expiration"].([]any); (len(expires) > 0) != (id == "control-documents") {
				t.Errorf("%s: rule %s expires %v", name, id, expires)
			}
		}
	}
	if r := sessions["control-documents"]; block(r, "expiration", "days") != 21.0 ||
		block(r, "filter", "prefix") != "sessions/control/" {
		t.Errorf("control documents: %v", r)
	}
	for _, r := range s.Of("aws_cloudwatch_log_group") {
		if r.Values["retention_in_days"] != 14.0 || r.Values["kms_key_id"] != s.Text("aws_kms_key.logs", "arn") {
			t.Errorf("%s: %v days, key %v", r.Address, r.Values["retention_in_days"], r.Values["kms_key_id"])
		}
	}
	// Each bucket has every protection.
	for _, kind := range []string{
		"versioning", "public_access_block", "ownership_controls", "server_side_encryption_configuration", "policy",
	} {
		if n := len(s.Of("aws_s3_bucket_" + kind)); n != 2 {
			t.Errorf("%d buckets of 2 have %s", n, kind)
		}
	}
	for _, r := range s.Of("aws_s3_bucket_public_access_block") {
		for _, key := range []string{
			"block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets",
		} {
			if r.Values[key] != true {
				t.Errorf("%s: %s is %v", r.Address, key, r.Values[key])
			}
		}
	}
	// Resources with data are not destroyed by mistake.
	out, err := w.Try("backbone", "destroy", "-no-color", "-input=false", "-auto-approve")
	for _, kept := range []string{
		`aws_s3_bucket.this["sessions"]`, `aws_s3_bucket.this["data"]`,
		"aws_ecr_repository.sessions", "aws_kms_key.logs",
	} {
		if err == nil || !strings.Contains(out, "Resource "+kept+" has\nlifecycle.prevent_destroy") &&
			!strings.Contains(strings.ReplaceAll(out, "\n", " "), kept+" has lifecycle.prevent_destroy") {
			t.Errorf("%s may be destroyed (%v):\n%s", kept, err, out)
		}
	}
}

// TestMonthlyDollars checks the sum against the price book.
func TestMonthlyDollars(t *testing.T) {
	slow(t)
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		region string
		nat    bool
	}{
		{"us-east-1", false}, {"us-east-1", true}, {"eu-west-1", true}, {"ap-northeast-1", true},
		{"me-central-1", false},
		{"me-central-1", true},
	} {
		t.Run(fmt.Sprint(tc.region, " ", tc.nat), func(t *testing.T) {
			w := New(t)
			w.Local("backbone")
			s := w.Apply("backbone", with(plain, map[string]any{"region": tc.region, "nat_gateway": tc.nat}))
			want, known := money.USD, true // the key
			for _, item := range []price.Item{price.ItemNAT, price.ItemAddress} {
				if !tc.nat {
					continue
				}
				p, err := book.Rate(item, tc.region)
				if known = known && err == nil; !known {
					break
				}
				month, err := p.Cost(730, 1)
				if err != nil {
					t.Fatal(err)
				}
				want += month
			}
			lines := s.Outputs["monthly_lines"].Value.([]any)
			if len(lines) != map[bool]int{false: 1, true: 3}[tc.nat] {
				t.Errorf("lines %v", lines)
			}
			var sum money.Amount
			for _, l := range lines {
				l := l.(map[string]any)
				if l["source"] == "" || l["source"] == nil {
					t.Errorf("line without a source: %v", l)
				}
				if l["monthly_usd"] == nil {
					continue
				}
				if l["as_of"] == nil {
					t.Errorf("price without a date: %v", l)
				}
				a, err := money.ParseAmount(l["monthly_usd"].(string))
				if err != nil {
					t.Fatal(err)
				}
				sum += a
			}
			got, _ := s.Outputs["monthly_usd"].Value.(string)
			if !known {
				if got != "" || s.Outputs["monthly_usd"].Value != nil ||
					len(s.Outputs["monthly_unpriced"].Value.([]any)) == 0 {
					t.Errorf("a sum of %v with unknown prices", s.Outputs["monthly_usd"].Value)
				}
				return
			}
			if a, err := money.ParseAmount(got); err != nil || a != want || sum != want {
				t.Errorf("$%s a month, lines sum to %v, want %v (%v)", got, sum, want, err)
			}
		})
	}
}

// TestSession applies a session on the state of a backbone that it only reads.
func TestSession(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	b := w.Apply("backbone", plain)
	before, err := os.ReadFile(filepath.Join(w.Dir, "terraform/backbone/terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	w.Local("session")
	const setup = "echo 'a: b' # \"c\"\npip install x"
	s := w.Apply("session", session(map[string]any{"nodes": 3, "spot": true, "zone": "us-east-1b", "setup": setup}))
	for _, r := range s.Resources {
		if r.Type != "aws_instance" && !strings.HasPrefix(r.Type, "aws_iam_") {
			t.Errorf("a session makes %s", r.Address)
		}
	}
	nodes := s.Of("aws_instance")
	if len(nodes) != 3 {
		t.Fatalf("%d machines", len(nodes))
	}
	for _, n := range nodes {
		v := n.Values
		if v["subnet_id"] != b.Text(`aws_subnet.public["us-east-1b"]`, "id") ||
			v["iam_instance_profile"] != s.Text("aws_iam_instance_profile.machine", "name") ||
			fmt.Sprint(v["vpc_security_group_ids"]) != "["+b.Text("aws_security_group.sessions", "id")+"]" ||
			v["instance_initiated_shutdown_behavior"] != "terminate" {
			t.Errorf("%s: %v", n.Address, v)
		}
		if block(v, "metadata_options", "http_tokens") != "required" ||
			block(v, "root_block_device", "encrypted") != true ||
			block(v, "root_block_device", "delete_on_termination") != true {
			t.Errorf("%s: metadata %v, disk %v", n.Address, v["metadata_options"], v["root_block_device"])
		}
		for _, tags := range []any{v["tags"], v["volume_tags"]} {
			for _, tag := range aws.SessionTags {
				if tags.(map[string]any)[tag] == nil {
					t.Errorf("%s has no tag %s", n.Address, tag)
				}
			}
		}
		data := v["user_data"].(string)
		var cloud struct {
			Files  []struct{ Path, Content string } `yaml:"write_files"`
			Runcmd [][]string
		}
		if err := yaml.Unmarshal([]byte(data), &cloud); err != nil || !strings.HasPrefix(data, "#cloud-config\n") ||
			len(cloud.Files) != 2 {
			t.Fatalf("user data (%v):\n%s", err, data)
		}
		if !strings.Contains(cloud.Files[1].Content, "\nOnCalendar=2999-01-01 18:30:00 UTC\n") ||
			!strings.Contains(cloud.Files[0].Content, "systemctl poweroff\n") {
			t.Errorf("units %+v", cloud.Files)
		}
		want := [][]string{
			{
				"systemctl", "daemon-reload",
			}, {"systemctl", "enable", "--now", "curfew-lease.timer"}, {"sh", "-c", setup},
		}
		if !reflect.DeepEqual(cloud.Runcmd, want) {
			t.Errorf("commands %q, want %q", cloud.Runcmd, want)
		}
	}
	// A later lease does not affect running machines.
	later := w.Apply("session",
		session(map[string]any{
			"nodes": 3, "spot": true, "zone": "us-east-1b", "setup": setup, "lease_until": "2999-02-01T00:00:00Z",
		}))
	for i, n := range later.Of("aws_instance") {
		if fmt.Sprint(n.Values) != fmt.Sprint(nodes[i].Values) {
			t.Errorf("%s is %v, was %v", n.Address, n.Values, nodes[i].Values)
		}
	}
	w.Run("session", "destroy", "-no-color", "-input=false", "-auto-approve")
	if after, err := os.ReadFile(filepath.Join(w.Dir, "terraform/backbone/terraform.tfstate")); err != nil ||
		string(after) != string(before) {
		t.Errorf("the state of the backbone changed (%v)", err)
	}
}

// TestSessionDocument checks Session Manager's document.
func TestSessionDocument(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	s := w.Apply("backbone", plain)
	var d struct {
		SchemaVersion, SessionType string
		Inputs                     struct {
			CloudWatchLogGroupName, KmsKeyID                        string
			CloudWatchEncryptionEnabled, CloudWatchStreamingEnabled bool
		}
	}
	if err := json.Unmarshal([]byte(s.Text("aws_ssm_document.session", "content")), &d); err != nil {
		t.Fatal(err)
	}
	if in := d.Inputs; d.SchemaVersion != "1.0" || d.SessionType != "Standard_Stream" ||
		!in.CloudWatchEncryptionEnabled || !in.CloudWatchStreamingEnabled ||
		in.KmsKeyID != s.Text("aws_kms_key.logs", "arn") ||
		in.CloudWatchLogGroupName != s.Text(`aws_cloudwatch_log_group.this["terminals"]`, "name") {
		t.Errorf("%+v", d)
	}
}

// fenced matches the commands of a document.
var fenced = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestDocument carries out the commands of docs/terraform.md from top to bottom, with states in
// files instead of a bucket. They include those of the modules' README.md.
func TestDocument(t *testing.T) {
	slow(t)
	w := New(t)
	of := func(file string) []string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, block := range fenced.FindAllStringSubmatch(string(raw), -1) {
			for line := range strings.Lines(block[1]) {
				if strings.HasPrefix(line, "terraform ") {
					out = append(out, strings.TrimSpace(line))
				}
			}
		}
		return out
	}
	commands := of("docs/terraform.md")
	if len(commands) < 8 {
		t.Fatalf("commands %q", commands)
	}
	for _, readme := range []string{"terraform/backbone/README.md", "terraform/session/README.md"} {
		for _, c := range of(readme) {
			if !slices.Contains(commands, c) {
				t.Errorf("%s has %q, which docs/terraform.md does not", readme, c)
			}
		}
	}
	for _, c := range commands {
		words := strings.Fields(c)[1:]
		module, in := strings.CutPrefix(words[0], "-chdir=terraform/")
		if !in || len(words) < 2 {
			t.Fatalf("%q names no module", c)
		}
		args := words[1:]
		switch args[0] {
		case "init":
			config, given := strings.CutPrefix(args[1], "-backend-config=")
			if _, err := os.Stat(filepath.Join(w.Dir, "terraform", module, config)); !given || err != nil {
				t.Errorf("%q: %v", c, err)
			}
			w.Local(module)
			continue
		case "apply", "destroy":
			args = append(args, "-auto-approve", "-input=false")
		case "output":
			if out := w.Run(module, args...); strings.TrimSpace(out) == "" {
				t.Errorf("%q prints nothing", c)
			}
			continue
		}
		if module == "session" {
			args = append(args, `-var=backbone={backend="local",config={path="../backbone/terraform.tfstate"}}`)
		}
		w.Run(module, append(args, "-no-color")...)
	}
}
