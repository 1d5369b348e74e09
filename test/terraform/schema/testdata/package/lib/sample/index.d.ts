export interface SampleConfig extends cdktf.TerraformMetaArguments {
    /**
    * Docs: {@link https://example.com/sample#name Sample#name}
    */
    readonly name: string;
    /**
    * Docs: {@link https://example.com/sample#zones Sample#zones}
    */
    readonly zones?: string[];
    /**
    * Docs: {@link https://example.com/sample#tags Sample#tags}
    */
    readonly tags?: {
        [key: string]: string;
    };
    /**
    * Docs: {@link https://example.com/sample#disk Sample#disk}
    */
    readonly disk?: SampleDisk;
    /**
    * Docs: {@link https://example.com/sample#rule Sample#rule}
    */
    readonly rule: SampleRule[] | cdktf.IResolvable;
    /**
    * Docs: {@link https://example.com/sample#ingress Sample#ingress}
    */
    readonly ingress?: SampleIngress[] | cdktf.IResolvable;
    /**
    * Docs: {@link https://example.com/sample#timeouts Sample#timeouts}
    */
    readonly timeouts?: SampleTimeouts;
}
export interface SampleDisk {
    /**
    * Docs: {@link https://example.com/sample#size Sample#size}
    */
    readonly size?: number;
}
export interface SampleRule {
    /**
    * Docs: {@link https://example.com/sample#id Sample#id}
    */
    readonly id: string;
}
export interface SampleIngress {
    /**
    * Docs: {@link https://example.com/sample#ports Sample#ports}
    */
    readonly ports?: number[];
}
export interface SampleTimeouts {
    /**
    * Docs: {@link https://example.com/sample#create Sample#create}
    */
    readonly create?: string;
}
