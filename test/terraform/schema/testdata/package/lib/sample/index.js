"use strict";
function sampleDiskToHclTerraform(struct) {
    const attrs = {
        size: {
            value: cdktf.numberToHclTerraform(struct.size),
            isBlock: false,
            type: "simple",
            storageClassType: "number",
        },
    };
    return attrs;
}
class SampleDiskOutputReference extends cdktf.ComplexObject {
}
function sampleRuleToHclTerraform(struct) {
    const attrs = {
        id: {
            value: cdktf.stringToHclTerraform(struct.id),
            isBlock: false,
            type: "simple",
            storageClassType: "string",
        },
    };
    return attrs;
}
class SampleRuleOutputReference extends cdktf.ComplexObject {
    // made - computed: true, optional: false, required: false
    get made() {
        return this.getStringAttribute('made');
    }
}
class SampleRuleList extends cdktf.ComplexList {
}
function sampleIngressToHclTerraform(struct) {
    const attrs = {
        ports: {
            value: cdktf.listMapperHcl(cdktf.numberToHclTerraform, false)(struct.ports),
            isBlock: false,
            type: "set",
            storageClassType: "numberList",
        },
    };
    return attrs;
}
class SampleIngressList extends cdktf.ComplexList {
}
function sampleTimeoutsToHclTerraform(struct) {
    const attrs = {
        create: {
            value: cdktf.stringToHclTerraform(struct.create),
            isBlock: false,
            type: "simple",
            storageClassType: "string",
        },
    };
    return attrs;
}
class SampleTimeoutsOutputReference extends cdktf.ComplexObject {
}
class Sample extends cdktf.TerraformResource {
    constructor(scope, id, config) {
        super(scope, id, {
            terraformResourceType: 'aws_sample',
        });
    }
    // arn - computed: true, optional: false, required: false
    get arn() {
        return this.getStringAttribute('arn');
    }
    // names - computed: true, optional: false, required: false
    get names() {
        return cdktf.Fn.tolist(this.getListAttribute('names'));
    }
    // parts - computed: true, optional: false, required: false
    get parts() {
        return this._parts;
    }
    synthesizeHclAttributes() {
        const attrs = {
            name: {
                value: cdktf.stringToHclTerraform(this._name),
                isBlock: false,
                type: "simple",
                storageClassType: "string",
            },
            zones: {
                value: cdktf.listMapperHcl(cdktf.stringToHclTerraform, false)(this._zones),
                isBlock: false,
                type: "list",
                storageClassType: "stringList",
            },
            tags: {
                value: cdktf.hashMapperHcl(cdktf.stringToHclTerraform)(this._tags),
                isBlock: false,
                type: "map",
                storageClassType: "stringMap",
            },
            disk: {
                value: sampleDiskToHclTerraform(this._disk.internalValue),
                isBlock: true,
                type: "list",
                storageClassType: "SampleDiskList",
            },
            rule: {
                value: cdktf.listMapperHcl(sampleRuleToHclTerraform, true)(this._rule.internalValue),
                isBlock: true,
                type: "set",
                storageClassType: "SampleRuleList",
            },
            ingress: {
                value: cdktf.listMapperHcl(sampleIngressToHclTerraform, false)(this._ingress.internalValue),
                isBlock: true,
                type: "set",
                storageClassType: "SampleIngressList",
            },
            timeouts: {
                value: sampleTimeoutsToHclTerraform(this._timeouts.internalValue),
                isBlock: true,
                type: "struct",
                storageClassType: "SampleTimeouts",
            },
        };
        return attrs;
    }
}
