package aws

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var backboneValues = map[string]string{
	"/curfew/backbone/version": "2", "/curfew/backbone/bucket": "b",
	"/curfew/backbone/subnets":        "subnet-1=us-east-1a,subnet-2=us-east-1b",
	"/curfew/backbone/security-group": "sg-1", "/curfew/backbone/machine-policy": "arn:p",
	"/curfew/backbone/log-group": "/curfew/sessions",
	"/curfew/backbone/kms-key":   "arn:k", "/curfew/backbone/session-document": "curfew-session",
}

func TestReadBackbone(t *testing.T) {
	got, err := ReadBackbone(backboneValues)
	want := &Backbone{
		Bucket: "b", SecurityGroup: "sg-1", MachinePolicy: "arn:p", LogGroup: "/curfew/sessions", Key: "arn:k",
		SessionDocument: "curfew-session",
		Subnets:         []Subnet{{"subnet-1", "us-east-1a"}, {"subnet-2", "us-east-1b"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v (%v)", got, want, err)
	}
	for name, bad := range map[string]string{"version": "1", "subnets": "subnet-1", "bucket": ""} {
		values := maps.Clone(backboneValues)
		values[BackbonePath+name] = bad
		if _, err := ReadBackbone(values); err == nil ||
			!strings.Contains(err.Error(), "parameter /curfew/backbone/"+name) {
			t.Errorf("%s=%q: %v", name, bad, err)
		}
	}
	for name := range backboneValues {
		values := maps.Clone(backboneValues)
		delete(values, name)
		if _, err := ReadBackbone(values); err == nil || !strings.Contains(err.Error(), name+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestBackboneContract checks that the parameters read here are those that the module writes and
// the document lists; test/terraform applies the module with Terraform.
func TestBackboneContract(t *testing.T) {
	read := func(file, pattern string) map[string]string {
		t.Helper()
		raw, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(raw), -1) {
			out[m[1]] = m[2]
		}
		return out
	}
	means, there := map[string]string{}, map[string]bool{}
	for _, p := range BackboneParameters {
		means[BackbonePath+p.Name], there[BackbonePath+p.Name] = p.Means, true
	}
	if got := read("docs/terraform.md", "(?m)^\\| `(/curfew/backbone/[^`]*)` \\| (.*) \\|$"); !maps.Equal(got, means) {
		t.Errorf("docs/terraform.md lists %v, want %v", got, means)
	}
	written := map[string]bool{}
	for name := range read("terraform/backbone/parameters.tf", `"(/curfew/backbone/[^"]*)"( *)=`) {
		written[name] = true
	}
	if !maps.Equal(written, there) {
		t.Errorf("terraform/backbone writes %v, curfew reads %v", written, there)
	}
	for file, pattern := range map[string]string{
		"terraform/backbone/versions.tf": `(contract) = "(.*)"`, "terraform/session/main.tf": `(contract) = "(.*)"`,
	} {
		if got := read(file, pattern)["contract"]; got != BackboneVersion {
			t.Errorf("%s has version %q, want %s", file, got, BackboneVersion)
		}
	}
}
