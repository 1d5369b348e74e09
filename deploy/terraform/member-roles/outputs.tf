output "read_role_arn" {
  description = "For aws.assume_roles of a curfew that reads."
  value       = aws_iam_role.read.arn
}

output "act_role_arn" {
  description = "For aws.assume_roles of a curfew that acts; null without one."
  value       = one(aws_iam_role.act[*].arn)
}
