"""Schemas, objects and rules compared with the results of Kubernetes' own code.

The tables were recorded from k8s.io/apiextensions-apiserver v0.34.4. Order is not compared: where the server iterates
over a map, its order is random.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gangline.schema.cel.checker import InstantiationError, check_expression
from gangline.schema.cel.cost import estimate_cost
from gangline.schema.cel.decl_types import decl_type, with_object_meta
from gangline.schema.cel.program import CelProgram
from gangline.schema.cel.syntax import ExpressionError
from gangline.schema.cel.values import CelError, as_cel_value
from gangline.schema.crd_validation.schema_rules import check_crd_schema
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem
from gangline.schema.structural.schema import StructuralSchema

FOLDER = Path(__file__).parent / "golden"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def error_texts(problems: list[FieldProblem]) -> list[list[str]]:
    return sorted([problem.kind.reason, problem.field, problem.message] for problem in problems)


@pytest.mark.parametrize("case", load("definitions"), ids=lambda case: json.dumps(case["schema"])[:80])
def test_schema_of_a_definition_is_refused_as_the_server_refuses_it(case: dict[str, Any]) -> None:
    result = check_crd_schema(case["schema"], status=case.get("status", False))
    assert error_texts(result) == case["problems"]


@pytest.mark.parametrize("number", range(len(load("objects"))))
def test_object_is_prepared_and_validated_as_by_the_server(number: int) -> None:
    case = load("objects")[number]
    structural = StructuralSchema.from_schema(case["schema"])
    obj = copy.deepcopy(case["object"])
    assert sorted(structural.prepare(obj)) == case["unknown"]
    assert obj == case["prepared"]
    assert error_texts(structural.validate(obj, case.get("old")).problems) == case["problems"]


@pytest.mark.parametrize("case", load("oracle"), ids=lambda case: case["case"])
def test_definitions_and_objects_of_the_api_oracle_are_answered_the_same(case: dict[str, Any]) -> None:
    for step in case["steps"]:
        if "object" not in step:
            result = check_crd_schema(step["schema"], step["path"])
            assert [[problem.kind.reason, problem.field, problem.message] for problem in result] == step["problems"]
            continue
        structural = StructuralSchema.from_schema(step["schema"])
        obj = copy.deepcopy(step["object"])
        structural.prepare(obj)
        problems = structural.validate(obj).problems
        if "problems" in step:
            assert error_texts(problems) == sorted(step["problems"])
        else:
            assert problems == []
            assert {name: part for name, part in obj.items() if name != "metadata"} == step["stored"]


EXPRESSIONS = load("expressions")
ROOT = SchemaNode(EXPRESSIONS["schema"])
DECLARED = decl_type(ROOT, "selfType", root=True)
assert DECLARED is not None
VARIABLES = {"self": DECLARED.type, "oldSelf": DECLARED.type}
RULES = EXPRESSIONS["rules"]


def problem_entry(rule: str) -> str:
    try:
        checked = check_expression(rule, VARIABLES)
    except InstantiationError as error:
        return f"program instantiation failed: {error}"
    except ExpressionError as error:
        return f"compilation failed: {error}"
    return "" if checked.result.kind == "bool" else "cel expression must evaluate to a bool"


@pytest.mark.parametrize("row", RULES, ids=lambda row: row["rule"])
def test_rule_is_checked_as_by_the_server(row: dict[str, Any]) -> None:
    assert problem_entry(row["rule"]) == row.get("error", "")


@pytest.mark.parametrize("row", [row for row in RULES if "cost" in row], ids=lambda row: row["rule"])
def test_rule_is_estimated_to_cost_what_the_server_says(row: dict[str, Any]) -> None:
    assert DECLARED is not None
    assert estimate_cost(check_expression(row["rule"], VARIABLES), DECLARED) == row["cost"]


@pytest.mark.parametrize("row", [row for row in RULES if "results" in row], ids=lambda row: row["rule"])
def test_rule_gives_what_it_gives_on_the_server(row: dict[str, Any]) -> None:
    program = CelProgram(check_expression(row["rule"], VARIABLES), 1_000_000)
    result: list[bool | str] = []
    for obj in EXPRESSIONS["objects"]:
        try:
            result.append(program.run({"self": as_cel_value(obj, with_object_meta(ROOT))})[0])
        except CelError as error:
            result.append(str(error))
    assert result == row["results"]
