output "instance_ids" {
  description = "The machines, by node."
  value       = aws_instance.node[*].id
}

output "connect" {
  description = "What opens a shell on each machine, recorded and encrypted."
  value = [for i in aws_instance.node[*].id :
    "aws ssm start-session --region ${local.backbone.region} --target ${i} --document-name ${local.backbone.session_document}"
  ]
}

output "limits" {
  description = "The session policy: what this configuration may never do."
  value       = local.limits
}
