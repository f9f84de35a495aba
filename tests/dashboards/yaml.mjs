// Reads YAML. In: texts. Out: for each what it says.
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";

const {parse} = createRequire(`${process.env.WEFT_NPM}/`)("yaml");
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((text) => parse(text))));
