package helm

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"sigs.k8s.io/yaml"
)

const moduleDir = "../../deploy/terraform/member-roles/"

// partition is the partition that both documents are evaluated in.
const partition = "aws-cn"

// policies evaluates the local values of the module for governed tags and buckets.
func policies(t *testing.T, governed, buckets cty.Value) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(moduleDir + "policies.tf")
	if err != nil {
		t.Fatal(err)
	}
	file, diags := hclsyntax.ParseConfig(raw, "policies.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	ctx := &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"var":   cty.ObjectVal(map[string]cty.Value{"governed_tags": governed, "governed_buckets": buckets}),
			"local": cty.ObjectVal(map[string]cty.Value{"partition": cty.StringVal(partition)}),
		},
		Functions: map[string]function.Function{
			"jsonencode": stdlib.JSONEncodeFunc, "concat": stdlib.ConcatFunc, "distinct": stdlib.DistinctFunc,
			"flatten": stdlib.FlattenFunc, "keys": stdlib.KeysFunc, "length": stdlib.LengthFunc,
		},
	}
	out := map[string]any{}
	for name, attribute := range file.Body.(*hclsyntax.Body).Blocks[0].Body.Attributes {
		value, diags := attribute.Expr.Value(ctx)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		var doc any
		if err := yaml.Unmarshal([]byte(value.AsString()), &doc); err != nil {
			t.Fatal(err)
		}
		out[name] = doc
	}
	return out
}

// TestTerraformIsCloudFormation compares both documents statement by statement; internal/cloud/aws
// evaluates the one of CloudFormation for every call.
func TestTerraformIsCloudFormation(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/cloudformation/curfew-member-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Properties struct {
				Policies []struct{ PolicyDocument map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &template); err != nil {
		t.Fatal(err)
	}
	ephemeral := cty.TupleVal([]cty.Value{
		cty.MapVal(map[string]cty.Value{"curfew:lifetime": cty.StringVal("ephemeral")}),
	})
	for _, wide := range []bool{false, true} {
		governed, buckets := cty.EmptyTupleVal, cty.EmptyTupleVal
		if wide {
			governed, buckets = ephemeral, cty.TupleVal([]cty.Value{cty.StringVal("models"), cty.StringVal("data")})
		}
		got := policies(t, governed, buckets)
		for local, resource := range map[string]string{"scan": "ReadRole", "enforce": "ActRole"} {
			doc := template.Resources[resource].Properties.Policies[0].PolicyDocument
			want := resolve(doc, wide)
			if statements := want.(map[string]any)["Statement"].([]any); len(statements) < 2 ||
				!reflect.DeepEqual(got[local], want) {
				t.Errorf("%s, governing more %v:\n%v\nwant\n%v", local, wide, got[local], want)
			}
		}
	}
}

// resolve replaces the functions of the template: either all conditions hold or none, and the
// buckets are those of the test.
func resolve(v any, wide bool) any {
	switch v := v.(type) {
	case map[string]any:
		if choice, ok := v["Fn::If"].([]any); ok {
			if wide {
				return resolve(choice[1], wide)
			}
			return resolve(choice[2], wide)
		}
		if text, ok := v["Fn::Sub"].(string); ok {
			return strings.ReplaceAll(text, "${AWS::Partition}", partition)
		}
		switch v["Ref"] {
		case "AWS::NoValue":
			return nil
		case "GovernedBuckets":
			return []any{"arn:" + partition + ":s3:::models", "arn:" + partition + ":s3:::data"}
		}
		out := map[string]any{}
		for key, value := range v {
			out[key] = resolve(value, wide)
		}
		return out
	case []any:
		out := []any{}
		for _, value := range v {
			if r := resolve(value, wide); r != nil {
				out = append(out, r)
			}
		}
		return out
	}
	return v
}

// TestModuleParses parses every file of the module.
func TestModuleParses(t *testing.T) {
	files, err := os.ReadDir(moduleDir)
	if err != nil || len(files) != 4 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(moduleDir + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, diags := hclsyntax.ParseConfig(raw, f.Name(), hcl.InitialPos); diags.HasErrors() {
			t.Error(diags)
		}
	}
}
