#!/usr/bin/env bash
# Long tests, in suites: slow.sh [SUITE...] runs those, or all of them; slow.sh --list lists
# them; slow.sh --turn prints the suite whose turn it is at this commit.
# From the environment: SEED, KILLS.
set -euo pipefail
cd "$(dirname "$0")/.."
suites=(actions schedules plans services cli docs checkpoints agents local api image python
	kills provider clocks disks jobs sessions calls runners unanswered helm templates terraform policies
	alerts drill pages contributing gateway)

# slow runs tests of packages that CURFEW_SLOW makes longer, or of which it runs more.
slow() { CURFEW_SLOW=1 go run ./test/gotest -- -count=1 "$@"; }

run() {
	case $1 in
	actions) slow -timeout 30m -run TestResumesAfterKill ./internal/action ;; # the ladder killed at every boundary
	schedules) slow -run 'TestConvergesUnderRandomFaults|TestSchedules|TestKilledAnywhere' ./internal/session ./internal/intent ;;
	plans) slow -run 'TestCampaign|TestConformance' ./internal/plan/spot ./internal/cloud/sim ;;
	services) slow -timeout 30m -run 'TestServeDemoSaves|TestSurvivesKilledAndSuspendedProcesses|TestServeRecordsAndReplays' ./internal/cli ./internal/app/server ./internal/app/scheduler ;;
	cli) slow -timeout 30m -run 'TestSlowScripts|TestSandboxBooks|TestDemoDay|TestNoLineExceedsTerminalWidth|TestSessionsOnPostgres|TestConnectBySSH|TestTheSameWhereverTheStateIs|TestSessionsOfOtherUsersAtAServer|TestBillTotalsEqualTheRows' ./internal/cli ;;
	docs) slow -timeout 30m -run 'TestGettingStarted|TestCommands' ./test/docs ;;
	checkpoints) slow -timeout 30m -run 'TestFaultAtEveryCall|TestKilledAtEveryCall|TestOneWriterWins|TestSurvivesServerKill|TestSurvivesBadNetwork|TestBench' ./internal/checkpoint ./internal/objectstore ./test/checkpointbench ;;
	agents) slow -timeout 30m ./internal/agent ;;
	local) slow -timeout 30m -run TestLaunchKilledAtEveryStep ./internal/cloud/local ;;
	api) ./test/requirements.sh npm && slow -run 'TestSchemathesis|TestGeneratedClients' ./test/api -seed "${SEED:-1}" ;;
	image) slow -run TestContainerRuns ./test/deploy ;;
	python) CURFEW_KILLS=${KILLS:-10} CURFEW_SEED=${SEED:-1} ./test/python.sh --slow ;;
	kills) slow -timeout 60m -run '^TestKilled|^TestStopped|^TestSoak' ./test/service ;;
	provider) slow -timeout 60m -run '^TestTheProviderFails|^TestAnOlderBinary' ./test/service ;;
	drill) slow -timeout 40m -run '^TestDrill' ./test/service ;; # the commands of docs/on-call.md during each fault
	clocks) slow -timeout 60m -run '^TestClocksJump' ./test/service ;;
	disks) slow -timeout 60m -run '^TestTheDatabase|^TestTheFile|^TestTheDisk' ./test/service ;;
	jobs) slow -timeout 40m -run '^TestKilledTraining' ./test/jobs ;; # a training, its machine, keeper and store killed at random
	sessions) slow -timeout 60m -skip 'TestKilledAtEveryCall|TestKilledRunner' ./test/sessions ;;
	calls) slow -timeout 120m -run TestKilledAtEveryCall ./test/sessions ;;
	runners) slow -timeout 60m -run TestKilledRunner ./test/sessions ;;
	unanswered) slow -timeout 60m -run TestReportsEveryUnansweredCall ./internal/cloud/aws ;; # every call of an audit, in every way
	contributing) slow -timeout 30m -run TestTemplatesWork ./test/contributing ;; # a tree for each thing to add
	helm) (cd test/helm && go test -count=1 .) ;;
	gateway) slow -timeout 20m -run TestFleetGoesToZeroAndBack ./test/gateway && make --no-print-directory gateway-answers ;; # 8 minutes
	templates) ./test/cfn-lint.sh ;;
	pages) make --no-print-directory build && ./test/screenshots/run.sh pages ;; # the stories of docs/pages.md in a browser
	terraform) make terraform ;;
	alerts) ./test/requirements.sh prometheus-alertmanager && slow -timeout 30m -run TestEachRuleFires ./test/monitoring ;; # 7 minutes
	policies) slow -run TestPolicyMatchesAWSReference ./test/iam ;; # against the reference of AWS
	*) echo "slow.sh: there is no suite $1; there are: ${suites[*]}" >&2; return 2 ;;
	esac
}

case ${1:-} in
--list) printf '%s\n' "${suites[@]}" ;;
--turn) echo "${suites[$(git rev-list --count HEAD) % ${#suites[@]}]}" ;;
*)
	[ $# -gt 0 ] || set -- "${suites[@]}"
	for suite; do
		echo "slow suite $suite"
		run "$suite"
	done
	;;
esac
