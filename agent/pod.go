package main

import (
	"fmt"
	"strings"
)

// pod has the fields of a pod that tell whether a command can run in it.
type pod struct {
	Metadata struct {
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"conditions"`
		ContainerStatuses []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type containerStatus struct {
	Name  string `json:"name"`
	State struct {
		Running *struct{} `json:"running"`
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
	} `json:"state"`
}

// defaultContainer is the container that kubectl would choose.
func (p *pod) defaultContainer() string {
	if name := p.Metadata.Annotations["kubectl.kubernetes.io/default-container"]; name != "" {
		return name
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}

// isOver tells whether the pod runs no more commands; another pod may get its name.
func (p *pod) isOver() bool {
	return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" || p.Metadata.DeletionTimestamp != ""
}

// runs tells whether the container runs; an empty name is the default container.
func (p *pod) runs(container string) bool {
	status := p.containerStatus(container)
	return !p.isOver() && status != nil && status.State.Running != nil
}

// reason says in a few words why the container does not run.
func (p *pod) reason(container string) string {
	if p.Metadata.DeletionTimestamp != "" {
		return "is being deleted"
	}
	words := "is " + p.Status.Phase
	for _, condition := range p.Status.Conditions {
		if condition.Type == "PodScheduled" && condition.Status == "False" && condition.Message != "" {
			return words + ": " + oneLine(condition.Message)
		}
	}
	status := p.containerStatus(container)
	if status == nil || status.State.Waiting == nil || status.State.Waiting.Reason == "" {
		return words
	}
	words = fmt.Sprintf("%s: %s", words, status.State.Waiting.Reason)
	if message := status.State.Waiting.Message; message != "" {
		words += ": " + oneLine(message)
	}
	return words
}

func (p *pod) containerStatus(container string) *containerStatus {
	if container == "" {
		container = p.defaultContainer()
	}
	for index := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[index].Name == container {
			return &p.Status.ContainerStatuses[index]
		}
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
