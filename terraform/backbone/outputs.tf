# terraform/session reads these from the state.

output "version" {
  description = "Version of the contract (docs/terraform.md)."
  value       = local.contract
}

output "region" {
  description = "Region of the backbone."
  value       = local.region
}

output "bucket" {
  description = "Bucket of the sessions."
  value       = aws_s3_bucket.this["sessions"].id
}

output "data_bucket" {
  description = "Bucket of the datasets."
  value       = aws_s3_bucket.this["data"].id
}

output "repository_url" {
  description = "Repository of images."
  value       = aws_ecr_repository.sessions.repository_url
}

output "subnets" {
  description = "Subnets of the machines, by zone."
  value       = { for zone in local.zones : zone => local.machine_subnets[zone].id }
}

output "security_group" {
  description = "Security group of the machines."
  value       = aws_security_group.sessions.id
}

output "machine_policy_arn" {
  description = "Policy of the roles of sessions' machines, and their permission boundary."
  value       = aws_iam_policy.machine.arn
}

output "log_group" {
  description = "Log group of the machines."
  value       = aws_cloudwatch_log_group.this["sessions"].name
}

output "kms_key" {
  description = "ARN of the key of logs and terminals."
  value       = aws_kms_key.logs.arn
}

output "session_document" {
  description = "Session Manager's document for shells."
  value       = aws_ssm_document.session.name
}

output "read_role_arn" {
  description = "For a curfew that reads."
  value       = aws_iam_role.read.arn
}

output "launch_role_arn" {
  description = "For a curfew that starts and ends sessions."
  value       = aws_iam_role.launch.arn
}

output "act_role_arn" {
  description = "For a curfew that acts; null without one."
  value       = one(aws_iam_role.act[*].arn)
}

output "connect_policy_arn" {
  description = "Policy of the people who connect to their machines."
  value       = aws_iam_policy.connect.arn
}

output "runner_role_arn" {
  description = "For runners of pipelines that run commands by curfew ci run; null without var.runners."
  value       = one(aws_iam_role.runner[*].arn)
}

output "session_state_policy_arn" {
  description = "Policy of the people who apply terraform/session; null without var.state."
  value       = one(aws_iam_policy.session_state[*].arn)
}

output "boundary_arn" {
  description = "Permission boundary of whoever launches machines."
  value       = aws_iam_policy.boundary.arn
}
