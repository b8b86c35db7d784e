// A bundle as it is exported now.
import {start} from "/pages/bundle.js";

start("bundle");
