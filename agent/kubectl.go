package main

import (
	"errors"
	"strings"
)

// kubectlName is a second name of this program, under which it understands what the script of v1 says, and launchers
// that start kubectl themselves. So a job goes on when the Kubeflow operator takes it over.
const kubectlName = "kubectl"

var errKubectl = errors.New(
	"this kubectl is gangline's agent and knows one command: kubectl exec POD [-i] [--container NAME] -- WORD...")

// parseKubectl reads the arguments of kubectl.
func parseKubectl(words []string) (request, error) {
	var asked request
	if len(words) == 0 || words[0] != "exec" {
		return asked, errKubectl
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		option, value, given := strings.Cut(words[0], "=")
		switch {
		case words[0] == "--":
			asked.command = words[1:]
			if asked.pod == "" || len(asked.command) == 0 {
				return asked, errKubectl
			}
			return asked, nil
		case words[0] == "-i" || words[0] == "--stdin":
			asked.stdin = true
		case (option == "--container" || option == "-c") && given:
			asked.container = value
		case (option == "--container" || option == "-c") && len(words) > 1:
			asked.container, words = words[1], words[1:]
		case !strings.HasPrefix(words[0], "-") && asked.pod == "":
			asked.pod = words[0]
		default:
			return asked, errKubectl
		}
	}
	return asked, errKubectl
}
